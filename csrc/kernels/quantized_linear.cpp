#include "quantized_linear.h"

#include "element_types.h"
#include "epilogue.h"
#include "linear.h"
#include "parallel.h"
#include "quantized_bf16.h"
#include "quantized_dot.h"
#include "quantized_groups.h"
#include "quantized_numbers.h"

namespace aotpack::kernels {
namespace {

using detail::group_of;
using detail::groups_of;
using detail::HighHalves;
using detail::kMiddle;
using detail::kPanelVectors;
using detail::rows_of;

// Up to so many rows are multiplied by numbers that are dequantized in registers: as many as there are registers for.
#if defined(__AVX512F__)
constexpr int kFewRows = 4;
#elif defined(__AVX__) || defined(__aarch64__)
constexpr int kFewRows = 2;
#else
constexpr int kFewRows = 1;
#endif
// And up to so many where digits of x are multiplied, unless there are dot products of pairs of bf16, which are faster
// from so many on.
constexpr int64_t kFewDots = 16, kManyPairs = 8;
// For more rows, a piece of B is dequantized into the second-level cache and multiplied from there.
constexpr int64_t kDepth = 512, kPanels = 4, kRows = 128;
constexpr int64_t kAhead = 2048;  // bytes of B that are asked for ahead of time

// Whether there is something to add to q * scale.
bool has_offset(const QuantizedLinearArgs& g) { return g.offset != nullptr || (g.bits == 4 && kMiddle != 0); }
bool few(const QuantizedLinearArgs& g) {
  if (g.m <= kFewRows) return true;
  return g.m <= kFewDots && quantized_dot_works(g) && !(g.m >= kManyPairs && quantized_takes_bf16(g));
}

struct Buffers {
  float *x, *sums;               // few rows: the rows as floats, and their sums over each group
  QuantizedDigits digits;        // their digits, where these are multiplied
  float *weights, *tile, *rows;  // of one thread
  QuantizedBf16Buffers bf16;     // in their place
  size_t bytes;
};
Buffers carve(const QuantizedLinearArgs& g, int thread) {
  Scratch from(g.scratch);
  Buffers b = {};
  if (few(g)) {
    b.x = from.take<float>(is_f32(g.dtype) ? 0 : g.m * g.k);
    b.sums = from.take<float>(has_offset(g) ? g.m * groups_of(g) : 0);
    if (quantized_dot_works(g)) {
      const QuantizedDigitCounts counts = quantized_digit_counts(g);
      b.digits = {from.take<uint8_t>(counts.bytes), from.take<int32_t>(counts.begin), from.take<float>(counts.step)};
    }
  } else {
    for (int t = 0; t <= thread; ++t) {
      if (quantized_takes_bf16(g)) {
        b.bf16 = quantized_bf16_buffers(g, from);
        continue;
      }
      b.weights = from.take<float>(kPanels * kDepth * kPanel);
      b.tile = from.take<float>(is_f32(g.dtype) ? 0 : min64(g.m, kRows) * kPanels * kPanel);
      b.rows = from.take<float>(is_f32(g.dtype) ? 0 : min64(g.m, kRows) * kDepth);
    }
  }
  b.bytes = from.bytes();
  return b;
}

// ---- few rows -------------------------------------------------------------------------------------------------------

struct Rows {
  const float* x;
  int64_t stride;
  const float* sums;  // null: nothing is added
  bool in_digits;     // of Buffers
};

template <int kBits, int kCount>
void multiply(const QuantizedLinearArgs& g, const Rows& rows, int64_t panel, const float* bias, float* tile) {
  // Several sums side by side cover the latency of the multiply-add.
  constexpr int kChains = kCount * kPanelVectors >= 8 ? 1 : kCount * kPanelVectors >= 4 ? 2 : 4;
  constexpr int64_t kBytes = kPanel * kBits / 8;
  // Where halves of bytes are shifted and converted, whole bytes take less time for one row. A 16th of their sums is
  // rounded as sums of the low halves are.
  constexpr bool kBytesPay = kBits == 4 && kMiddle != 0 && kCount == 1;
  constexpr auto kHighHalves = kBytesPay ? HighHalves::in_bytes : HighHalves::apart;
  const uint8_t* w = static_cast<const uint8_t*>(g.w_packed) + panel * g.k * kBytes;
  const int64_t count = groups_of(g);
  const float* scale = g.scale + panel * count * kPanel;
  const float* offset = g.offset == nullptr ? nullptr : g.offset + panel * count * kPanel;
  vf total[kCount][kPanelVectors];
  AOTPACK_UNROLL
  for (int r = 0; r < kCount; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) total[r][v] = load(bias + v * kWidth);
  }
  for (int64_t group = 0; group < count; ++group, scale += kPanel) {
    const Range mine = rows_of(g, group);
    int64_t i = mine.begin;
    const int64_t end = mine.end;
    vf acc[kChains][kCount][kPanelVectors] = {};
    const auto step = [&](int chain, int64_t at) __attribute__((always_inline)) {
      vf column[kPanelVectors];
      detail::panel_row<kBits, kHighHalves>(w, column);
      w += kBytes;
      AOTPACK_UNROLL
      for (int r = 0; r < kCount; ++r) {
        const vf x = vset(rows.x[r * rows.stride + at]);
        AOTPACK_UNROLL
        for (int v = 0; v < kPanelVectors; ++v) acc[chain][r][v] += x * column[v];
      }
    };
    for (; i + 4 <= end; i += 4) {
      AOTPACK_UNROLL
      for (int64_t line = 0; line < 4 * kBytes; line += 64) __builtin_prefetch(w + kAhead + line);
      AOTPACK_UNROLL
      for (int c = 0; c < 4; ++c) step(c % kChains, i + c);
    }
    for (; i < end; ++i) step(0, i);
    constexpr int kLow = kPanelVectors / 2;
    [[maybe_unused]] vf low[kCount][kLow];
    AOTPACK_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) {
      const vf s = load(scale + v * kWidth);
      AOTPACK_UNROLL
      for (int r = 0; r < kCount; ++r) {
        vf sum = acc[0][r][v];
        AOTPACK_UNROLL
        for (int c = 1; c < kChains; ++c) sum += acc[c][r][v];
        if constexpr (kHighHalves == HighHalves::in_bytes) {
          if (v < kLow) {
            low[r][v] = sum;
          } else {
            sum = (sum - low[r][v - kLow]) * vset(1 / 16.0f);
          }
        }
        total[r][v] += sum * s;
      }
    }
    if (rows.sums == nullptr) continue;
    AOTPACK_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) {
      vf added = offset == nullptr ? vset(0.0f) : load(offset + group * kPanel + v * kWidth);
      if constexpr (kBits == 4 && kMiddle != 0) added -= kMiddle * load(scale + v * kWidth);
      AOTPACK_UNROLL
      for (int r = 0; r < kCount; ++r) total[r][v] += added * vset(rows.sums[r * count + group]);
    }
  }
  AOTPACK_UNROLL
  for (int r = 0; r < kCount; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) store(tile + r * kPanel + v * kWidth, total[r][v]);
  }
}

template <int kBits>
void multiply_some(const QuantizedLinearArgs& g, const Rows& rows, int64_t count, int64_t panel, const float* bias,
                   float* tile) {
  if (count == 1) return multiply<kBits, 1>(g, rows, panel, bias, tile);
  if constexpr (kFewRows >= 2) {
    if (count == 2) return multiply<kBits, 2>(g, rows, panel, bias, tile);
  }
  if constexpr (kFewRows >= 4) {
    if (count == 3) return multiply<kBits, 3>(g, rows, panel, bias, tile);
    return multiply<kBits, 4>(g, rows, panel, bias, tile);
  }
}

template <int kBits>
void multiply_few(const QuantizedLinearArgs& g, Rows rows, int64_t panel, const float* bias, float* tile) {
  for (int64_t row = 0; row < g.m; row += kFewRows) {
    multiply_some<kBits>(g, rows, min64(kFewRows, g.m - row), panel, bias, tile + row * kPanel);
    rows.x += kFewRows * rows.stride;
    if (rows.sums != nullptr) rows.sums += kFewRows * groups_of(g);
  }
}

float sum_over(const float* x, int64_t count) {
  vf sum = vset(0.0f);
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) sum += load(x + i);
  float total = sum_of(sum);
  for (; i < count; ++i) total += x[i];
  return total;
}

Rows prepare(const QuantizedLinearArgs& g) {
  const Buffers b = carve(g, 0);
  Rows rows = {static_cast<const float*>(g.x), g.x_stride, nullptr, false};
  if (!is_f32(g.dtype)) {
    widen_rows(g.x, g.x_stride, g.dtype, g.m, g.k, b.x, g.k);
    rows = {b.x, g.k, nullptr, false};
  }
  if (has_offset(g)) {
    const int64_t count = groups_of(g);
    for (int64_t r = 0; r < g.m; ++r) {
      for (int64_t i = 0; i < count; ++i) {
        const Range mine = rows_of(g, i);
        b.sums[r * count + i] = sum_over(rows.x + r * rows.stride + mine.begin, mine.end - mine.begin);
      }
    }
    rows.sums = b.sums;
  }
  rows.in_digits = quantized_dot_works(g) && quantized_digits(g, rows.x, rows.stride, b.digits);
  return rows;
}

void run_few(const QuantizedLinearArgs& g, const Rows& rows, Range panels) {
  alignas(64) float bias[kPanel], tile[kFewDots * kPanel];
  const QuantizedDigits digits = carve(g, 0).digits;
  for (int64_t panel = panels.begin; panel < panels.end; ++panel) {
    const int64_t column = panel * kPanel;
    panel_bias(advance(g.bias, column, g.dtype), g.dtype, g.n - column, bias);
    if (rows.in_digits) {
      quantized_dot(g, digits, rows.sums, panel, bias, tile);
    } else {
      (g.bits == 4 ? multiply_few<4> : multiply_few<8>)(g, rows, panel, bias, tile);
    }
    finish(tile, kPanel, g.m, min64(kPanel, g.n - column), g.dtype, advance(g.residual, column, g.dtype),
           g.residual_stride, g.act, advance(g.y, column, g.dtype), g.y_stride);
  }
}

// ---- many rows ------------------------------------------------------------------------------------------------------

// Rows [k, k + depth) of a panel as floats.
template <int kBits>
void dequantize(const QuantizedLinearArgs& g, int64_t panel, int64_t k, int64_t depth, float* to) {
  constexpr int64_t kBytes = kPanel * kBits / 8;
  const uint8_t* w = static_cast<const uint8_t*>(g.w_packed) + (panel * g.k + k) * kBytes;
  for (const int64_t end = k + depth; k < end;) {
    const int64_t group = group_of(g, k), group_end = min64(rows_of(g, group).end, end);
    const int64_t at = (panel * groups_of(g) + group) * kPanel;
    vf scale[kPanelVectors], offset[kPanelVectors];
    AOTPACK_UNROLL
    for (int v = 0; v < kPanelVectors; ++v) {
      scale[v] = load(g.scale + at + v * kWidth);
      offset[v] = g.offset == nullptr ? vset(0.0f) : load(g.offset + at + v * kWidth);
      if constexpr (kBits == 4 && kMiddle != 0) offset[v] -= kMiddle * scale[v];
    }
    for (; k < group_end; ++k, w += kBytes, to += kPanel) {
      vf column[kPanelVectors];
      detail::panel_row<kBits>(w, column);
      AOTPACK_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) store(to + v * kWidth, column[v] * scale[v] + offset[v]);
    }
  }
}

// One block of rows with some panels. Sums of earlier pieces of k wait in y, or in the thread's tile.
void run_block(const QuantizedLinearArgs& g, const Buffers& b, Range rows, Range panels) {
  const bool floats = is_f32(g.dtype);
  const int64_t column = panels.begin * kPanel, columns = min64(panels.end * kPanel, g.n) - column;
  void* y = advance(g.y, rows.begin * g.y_stride + column, g.dtype);
  const void* residual = advance(g.residual, rows.begin * g.residual_stride + column, g.dtype);
  alignas(64) float bias[kPanels * kPanel];
  for (int64_t p = panels.begin; p < panels.end; ++p) {
    panel_bias(advance(g.bias, p * kPanel, g.dtype), g.dtype, g.n - p * kPanel, bias + (p - panels.begin) * kPanel);
  }
  LinearArgs a = {};
  a.dtype = DType::f32;
  a.m = rows.end - rows.begin;
  a.n = columns;
  a.w_packed = b.weights;
  a.y = floats ? y : b.tile;
  a.y_stride = floats ? g.y_stride : kPanels * kPanel;
  a.num_threads = 1;
  int64_t k = 0;
  do {
    a.k = min64(kDepth, g.k - k);
    for (int64_t p = panels.begin; p < panels.end; ++p) {
      (g.bits == 4 ? dequantize<4> : dequantize<8>)(g, p, k, a.k, b.weights + (p - panels.begin) * a.k * kPanel);
    }
    const void* x = advance(g.x, rows.begin * g.x_stride + k, g.dtype);
    if (!floats) widen_rows(x, g.x_stride, g.dtype, a.m, a.k, b.rows, kDepth);
    a.x = floats ? x : b.rows;
    a.x_stride = floats ? g.x_stride : kDepth;
    a.bias = k == 0 ? bias : nullptr;
    a.residual = k != 0 ? a.y : floats ? residual : nullptr;
    a.residual_stride = k != 0 ? a.y_stride : g.residual_stride;
    k += a.k;
    a.act = floats && k >= g.k ? g.act : Act::none;
    linear(a);
  } while (k < g.k);
  if (!floats) finish(b.tile, a.y_stride, a.m, columns, g.dtype, residual, g.residual_stride, g.act, y, g.y_stride);
}

void run_many(const QuantizedLinearArgs& g, int thread, int threads) {
  const int64_t tiles = row_tiles(g.m);
  const double k = static_cast<double>(g.k);
  const Rectangle mine = share_grid(tiles, ceil_div(g.n, kPanel), 4 * k * kMaxRows, 4 * k * kPanel, thread, threads);
  if (mine.rows.begin >= mine.rows.end || mine.columns.begin >= mine.columns.end) return;
  const Buffers b = carve(g, thread);
  const Range rows = {share(g.m, mine.rows.begin, tiles).begin, share(g.m, mine.rows.end - 1, tiles).end};
  const bool pairs = quantized_takes_bf16(g);
  const int64_t most_rows = pairs ? kQuantizedBf16Rows : kRows, most_panels = pairs ? kQuantizedBf16Panels : kPanels;
  for (int64_t row = rows.begin; row < rows.end; row += most_rows) {
    const Range some = {row, min64(row + most_rows, rows.end)};
    for (int64_t panel = mine.columns.begin; panel < mine.columns.end; panel += most_panels) {
      const Range panels = {panel, min64(panel + most_panels, mine.columns.end)};
      if (pairs) {
        quantized_bf16_block(g, b.bf16, some, panels);
      } else {
        run_block(g, b, some, panels);
      }
    }
  }
}

int thread_count(const QuantizedLinearArgs& g) {
  const double numbers = static_cast<double>(g.n) * static_cast<double>(max64(g.k, 1));
  return worth_threads(2.0 * static_cast<double>(g.m) * numbers / 200e3 + numbers / 40e3, g.num_threads);
}

}  // namespace

size_t quantized_linear_scratch_bytes(const QuantizedLinearArgs& args) {
  QuantizedLinearArgs g = args;
  g.scratch = nullptr;
  return carve(g, static_cast<int>(max64(args.num_threads, 1)) - 1).bytes;
}

void quantized_linear(const QuantizedLinearArgs& g) {
  if (g.m <= 0 || g.n <= 0) return;
  const int64_t panels = ceil_div(g.n, kPanel);
  if (!few(g)) return parallel(thread_count(g), [&](int thread, int threads) { run_many(g, thread, threads); });
  const Rows rows = prepare(g);
  parallel(thread_count(g), [&](int thread, int threads) { run_few(g, rows, share(panels, thread, threads)); });
}

}  // namespace aotpack::kernels
