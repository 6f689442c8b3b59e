#include "micro.h"

#include <array>
#include <limits>
#include <utility>

#include "element_types.h"

namespace aotpack::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kVectors = 2;  // the whole panel
constexpr int kWideRows = 0;
#elif defined(__AVX__)
constexpr int kVectors = 2;   // half a panel
constexpr int kWideRows = 2;  // up to so many rows the whole panel is taken at once: one pass over memory
#elif defined(AOTPACK_SVE256)
constexpr int kVectors = 4;  // the whole panel
constexpr int kWideRows = 0;
#elif defined(__aarch64__)
constexpr int kVectors = 4;
constexpr int kWideRows = 2;
#else
constexpr int kVectors = 2;
constexpr int kWideRows = 1;
#endif
// Rows of a packed panel that are asked for ahead of time: few rows of a leave no time to wait for memory, and the
// hardware stops looking ahead at the end of a page.
constexpr int64_t kPrefetch = 64;
// Accumulators from which on a step takes long enough to ask for a line.
constexpr int kLeastAsking = 12;
constexpr int kWholePanel = static_cast<int>(kPanel) / kWidth;

// A line of g.ahead in each step, if kAsks.
template <bool kAsks>
class Asker {
 public:
  explicit Asker(const MicroArgs& g) : next_(g.ahead), left_(g.ahead_count) { begin(); }
  AOTPACK_INLINE void step() {
    if (rows_ == 0) return;
    __builtin_prefetch(line_);
    line_ += 64;
    if (line_ < end_) return;
    line_ = at_ += stride_;
    end_ = at_ + bytes_;
    if (--rows_ == 0) begin();
  }

 private:
  AOTPACK_INLINE void begin() {
    if (left_ == 0) return;
    --left_;
    line_ = at_ = next_->at;
    bytes_ = next_->bytes;
    end_ = at_ + bytes_;
    stride_ = next_->stride;
    rows_ = next_->rows;
    ++next_;
  }

  const Ahead* next_;
  int left_;
  int rows_ = 0;
  const char *line_ = nullptr, *end_ = nullptr, *at_ = nullptr;
  int64_t bytes_ = 0, stride_ = 0;
};
template <>
class Asker<false> {
 public:
  explicit Asker(const MicroArgs&) {}
  void step() {}
};

// The numbers of kRows rows of one tap, in every lane, from one step of the product to the next.
template <int kRows, bool kEven>
class Rows {
 public:
  AOTPACK_INLINE Rows(const float* const* rows, int64_t) {
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) at_[r] = rows[r];
  }
#if defined(AOTPACK_SVE256)
  // Not by an index, which loads that repeat a number do not have.
  AOTPACK_INLINE vf operator()(int r, int64_t) const { return load_repeated(at_[r]); }
  AOTPACK_INLINE void next() {
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) ++at_[r];
  }
#else
  AOTPACK_INLINE vf operator()(int r, int64_t i) const { return vset(at_[r][i]); }
  AOTPACK_INLINE void next() {}
#endif

 private:
  const float* at_[kRows];
};
// Rows that lie a step apart: addresses are few registers, where kRows pointers are more than there are.
template <int kRows>
class Rows<kRows, true> {
 public:
  AOTPACK_INLINE Rows(const float* const* rows, int64_t step)
      : low_(reinterpret_cast<const char*>(rows[0])), high_(low_ + kHalf * step * 4), step_(step * 4) {}
  AOTPACK_INLINE vf operator()(int r, int64_t) const {
    const char* const at = r < kHalf ? low_ + r * step_ : high_ + (r - kHalf) * step_;
    return vset(*reinterpret_cast<const float*>(at));
  }
  AOTPACK_INLINE void next() {
    low_ += sizeof(float);
    high_ += sizeof(float);
    asm("" : "+r"(low_), "+r"(high_));  // or the compiler makes kRows pointers of them
  }

 private:
  static constexpr int kHalf = 7;
  const char *low_, *high_;
  int64_t step_;
};

template <int kRows, int kVecs, class B, bool kEven>
void kernel(const MicroArgs& g) {
  // With few rows several sums per element run side by side, to cover the latency of the multiply-add.
  constexpr int kChains = kRows * kVecs >= 8 ? 1 : kRows * kVecs >= 4 ? 2 : 4;
  vf acc[kChains][kRows][kVecs];
  AOTPACK_UNROLL
  for (int v = 0; v < kVecs; ++v) {
    const vf same = g.init == nullptr ? vset(0.0f) : load(g.init + v * kWidth);
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      acc[0][r][v] = same;
      AOTPACK_UNROLL
      for (int c = 1; c < kChains; ++c) acc[c][r][v] = vset(0.0f);
    }
  }
  if (g.init != nullptr && g.init_stride != 0) {
    AOTPACK_UNROLL
    for (int r = 1; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kVecs; ++v) acc[0][r][v] = load(g.init + r * g.init_stride + v * kWidth);
    }
  }
  Asker<(kRows * kVecs >= kLeastAsking)> asker(g);
  const int64_t b_stride = g.b_stride, k = g.k, ahead = g.b_ahead != 0 ? g.b_ahead : kPrefetch * kPanel;
  const float* const* rows = g.rows;
  for (int64_t t = 0; t < g.taps; ++t, rows += kRows) {
    const B* b = static_cast<const B*>(g.b) + (g.b_offsets != nullptr ? g.b_offsets[t] : t * k * b_stride);
    Rows<kRows, kEven> a(rows, g.row_step);
    int64_t i = 0;
    for (; i + kChains <= k; i += kChains) {
      AOTPACK_UNROLL
      for (int c = 0; c < kChains; ++c, b += b_stride, a.next()) {
        asker.step();
        AOTPACK_UNROLL
        for (int byte = 0; byte < kVecs * kWidth * static_cast<int>(sizeof(B)); byte += 64) {
          __builtin_prefetch(reinterpret_cast<const char*>(b + ahead) + byte);
        }
        vf column[kVecs];
        AOTPACK_UNROLL
        for (int v = 0; v < kVecs; ++v) column[v] = load(b + v * kWidth);
        AOTPACK_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const vf x = a(r, i + c);
          AOTPACK_UNROLL
          for (int v = 0; v < kVecs; ++v) acc[c][r][v] += x * column[v];
        }
      }
    }
    if constexpr (kChains > 1) {
      for (; i < k; ++i, b += b_stride, a.next()) {
        AOTPACK_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const vf x = a(r, i);
          AOTPACK_UNROLL
          for (int v = 0; v < kVecs; ++v) acc[0][r][v] += x * load(b + v * kWidth);
        }
      }
    }
  }
  AOTPACK_UNROLL
  for (int r = 0; r < kRows; ++r) {
    AOTPACK_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      AOTPACK_UNROLL
      for (int c = 1; c < kChains; ++c) acc[0][r][v] += acc[c][r][v];
    }
  }
  // Of vector v: how many of its columns there are.
  const auto columns_of = [&](int v) { return g.columns - v * kWidth; };
  if (g.residual != nullptr) {
    AOTPACK_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      const float* const from = g.residual + v * kWidth;
      if (const int columns = columns_of(v); columns >= kWidth) {
        AOTPACK_UNROLL
        for (int r = 0; r < kRows; ++r) acc[0][r][v] += load(from + r * g.residual_stride);
      } else if (columns > 0) {
        AOTPACK_UNROLL
        for (int r = 0; r < kRows; ++r) acc[0][r][v] += load_partial(from + r * g.residual_stride, columns);
      }
    }
  }
  if (g.clamp) {
    const vf low = vset(g.low), high = vset(g.high);
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kVecs; ++v) acc[0][r][v] = at_least(acc[0][r][v], low);
    }
    if (g.high < std::numeric_limits<float>::infinity()) {
      AOTPACK_UNROLL
      for (int r = 0; r < kRows; ++r) {
        AOTPACK_UNROLL
        for (int v = 0; v < kVecs; ++v) acc[0][r][v] = at_most(acc[0][r][v], high);
      }
    }
  }
  if (g.stream && columns_of(kVecs) >= 0) {
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kVecs; ++v) stream(g.y + r * g.y_stride + v * kWidth, acc[0][r][v]);
    }
    return;
  }
  AOTPACK_UNROLL
  for (int v = 0; v < kVecs; ++v) {
    float* const to = g.y + v * kWidth;
    if (const int columns = columns_of(v); columns >= kWidth) {
      AOTPACK_UNROLL
      for (int r = 0; r < kRows; ++r) store(to + r * g.y_stride, acc[0][r][v]);
    } else if (columns > 0) {
      AOTPACK_UNROLL
      for (int r = 0; r < kRows; ++r) store_partial(to + r * g.y_stride, acc[0][r][v], columns);
    }
  }
}

using Kernel = void (*)(const MicroArgs&);

// Few pointers fit in registers.
template <int kRows, bool kEven>
inline constexpr bool kByStep = kEven && kRows >= 8;

template <int kVecs, class B, bool kEven, int... kRow>
constexpr std::array<Kernel, sizeof...(kRow)> table(std::integer_sequence<int, kRow...>) {
  return {kernel<kRow + 1, kVecs, B, kByStep<kRow + 1, kEven>>...};
}

template <int kVecs, class B>
const Kernel* kernels_for(const MicroArgs& args) {
  static constexpr auto kAnywhere = table<kVecs, B, false>(std::make_integer_sequence<int, kMaxRows>());
  static constexpr auto kEven = table<kVecs, B, true>(std::make_integer_sequence<int, kMaxRows>());
  return (args.row_step != 0 ? kEven : kAnywhere).data();
}

// Walks the panel in pieces of kVecs vectors, as far as there are columns.
template <int kVecs, class B>
void run(const Kernel* kernels, int row_count, MicroArgs args) {
  constexpr int kStep = kVecs * kWidth;
  const B* b = static_cast<const B*>(args.b);
  for (;;) {
    kernels[row_count - 1](args);
    if (args.columns <= kStep) return;
    args.columns -= kStep;
    args.b = b += kStep;
    if (args.init != nullptr) args.init += kStep;
    if (args.residual != nullptr) args.residual += kStep;
    args.y += kStep;
  }
}

template <class B>
void dispatch(int row_count, const MicroArgs& args) {
  if constexpr (kWideRows > 0) {
    static constexpr auto kWide = table<kWholePanel, B, false>(std::make_integer_sequence<int, kWideRows>());
    if (row_count <= kWideRows && args.columns > kVectors * kWidth) {
      kWide[static_cast<size_t>(row_count - 1)](args);
      return;
    }
  }
  if constexpr (kVectors * kWidth == kPanel) {
    const Kernel* const kernels = args.columns <= kWidth ? kernels_for<1, B>(args) : kernels_for<kVectors, B>(args);
    kernels[row_count - 1](args);
  } else {
    run<kVectors, B>(kernels_for<kVectors, B>(args), row_count, args);
  }
}

}  // namespace

void micro(DType b_dtype, int row_count, const MicroArgs& args) {
  with_type(b_dtype, [&]<class B>() { dispatch<B>(row_count, args); });
}

}  // namespace aotpack::kernels
