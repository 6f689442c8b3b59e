#include "epilogue.h"

#include <limits>

#include "caches.h"
#include "element_types.h"

namespace aotpack::kernels {
namespace {

template <Act act, class T>
void finish_as(const float* sums, int64_t sums_stride, int64_t rows, int64_t columns, const T* residual,
               int64_t residual_stride, T* y, int64_t y_stride) {
  for (int64_t r = 0; r < rows; ++r, sums += sums_stride, y += y_stride) {
    int64_t j = 0;
    for (; j + kWidth <= columns; j += kWidth) {
      vf x = load(sums + j);
      if (residual != nullptr) x += load(residual + j);
      store(y + j, apply<act>(x));
    }
    if (const int left = static_cast<int>(columns - j); left > 0) {
      vf x = load_partial(sums + j, left);
      if (residual != nullptr) x += load_partial(residual + j, left);
      store_partial(y + j, apply<act>(x), left);
    }
    if (residual != nullptr) residual += residual_stride;
  }
}

template <class T>
void finish_with(Act act, const float* sums, int64_t sums_stride, int64_t rows, int64_t columns, const T* residual,
                 int64_t residual_stride, T* y, int64_t y_stride) {
  with_act(act, [&]<Act kAct>() {
    finish_as<kAct, T>(sums, sums_stride, rows, columns, residual, residual_stride, y, y_stride);
  });
}

template <class T>
void widen_rows_of(const T* from, int64_t from_stride, int64_t rows, int64_t k, float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; ++r, from += from_stride, to += to_stride) {
    int64_t i = 0;
    for (; i + kWidth <= k; i += kWidth) store(to + i, load(from + i));
    for (; i < k; ++i) to[i] = to_float(from[i]);
  }
}

}  // namespace

void finish(const float* sums, int64_t sums_stride, int64_t rows, int64_t columns, DType dtype, const void* residual,
            int64_t residual_stride, Act act, void* y, int64_t y_stride) {
  with_type(dtype, [&]<class T>() {
    finish_with(act, sums, sums_stride, rows, columns, static_cast<const T*>(residual), residual_stride,
                static_cast<T*>(y), y_stride);
  });
}

void widen_rows(const void* from, int64_t from_stride, DType dtype, int64_t rows, int64_t k, float* to,
                int64_t to_stride) {
  with_type(dtype, [&]<class T>() { widen_rows_of(static_cast<const T*>(from), from_stride, rows, k, to, to_stride); });
}

void panel_bias(const void* bias, DType dtype, int64_t columns, float out[kPanel]) {
  const int64_t count = bias == nullptr ? 0 : min64(columns, kPanel);
  if (count > 0) widen(bias, dtype, count, out);
  for (int64_t j = count; j < kPanel; ++j) out[j] = 0.0f;
}

bool streams(const void* y, int64_t y_stride, int64_t count, Act act) {
#if defined(__AVX__)
  constexpr int64_t kLeastBytes = 12 << 20;  // where the size of the cache is not known, too
  const bool in_registers = act == Act::none || act == Act::relu || act == Act::relu6;
  const bool in_lines = reinterpret_cast<uintptr_t>(y) % 64 == 0 && y_stride % 16 == 0;
  // What is read beside it, and by others, takes the rest of the cache.
  return in_registers && in_lines && count * 4 >= max64(kLeastBytes, last_cache_bytes() / 8 * 3);
#else
  (void)y, (void)y_stride, (void)count, (void)act;
  return false;
#endif
}

void micro_finish(DType b_dtype, int row_count, MicroArgs& args, DType dtype, const void* residual,
                  int64_t residual_stride, Act act, void* y, int64_t y_stride) {
  if (is_f32(dtype)) {
    // Clamps are done in registers; other activations in place, while the tile is in the nearest cache.
    const bool clamp = act == Act::relu || act == Act::relu6;
    args.residual = static_cast<const float*>(residual);
    args.residual_stride = residual_stride;
    args.clamp = clamp;
    args.low = 0.0f;
    args.high = act == Act::relu6 ? 6.0f : std::numeric_limits<float>::infinity();
    args.y = static_cast<float*>(y);
    args.y_stride = y_stride;
    micro(b_dtype, row_count, args);
    if (act != Act::none && !clamp) {
      finish(args.y, y_stride, row_count, args.columns, dtype, nullptr, 0, act, y, y_stride);
    }
    return;
  }
  alignas(64) float tile[kMaxRows * kPanel];
  args.residual = nullptr;
  args.clamp = false;
  args.y = tile;
  args.y_stride = kPanel;
  micro(b_dtype, row_count, args);
  finish(tile, kPanel, row_count, args.columns, dtype, residual, residual_stride, act, y, y_stride);
}

}  // namespace aotpack::kernels
