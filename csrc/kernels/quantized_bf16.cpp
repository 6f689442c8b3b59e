#include "quantized_bf16.h"

#include "bf16_copy.h"
#include "bf16_product.h"
#include "element_types.h"
#include "epilogue.h"
#include "quantized_groups.h"
#include "quantized_numbers.h"

namespace aotpack::kernels {

#if defined(__AVX512BF16__) && !defined(__AMX_BF16__)

namespace {

using detail::groups_of;
using detail::kPanelVectors;
using detail::rows_of;

static_assert(kPanelVectors == 2);

constexpr int64_t kDepth = 512;               // of k at a time
constexpr int64_t kMostParts = kDepth / 2;    // of groups, each padded to whole pairs
constexpr int64_t kStride = kDepth + kPanel;  // of rows: not a multiple of a page, and room for a whole vector
constexpr int64_t kTile = 6;                  // rows, whose sums over a group and over all are kept in registers
constexpr int64_t kColumns = kQuantizedBf16Panels * kPanel;

// What of a group lies in a piece of k.
struct Part {
  int64_t group, k, count, at;  // at: where it begins in the piece
  int64_t padded() const { return round_up(count, 2); }
};

class Block {
 public:
  Block(const QuantizedLinearArgs& g, const QuantizedBf16Buffers& b, Range rows, Range panels)
      : g_(g), b_(b), rows_(rows), panels_(panels) {}

  void run() {
    for (int64_t p = panels_.begin; p < panels_.end; ++p) {
      const int64_t column = p * kPanel;
      panel_bias(advance(g_.bias, column, g_.dtype), g_.dtype, g_.n - column, bias_[p - panels_.begin]);
    }
    const int64_t count = rows_.end - rows_.begin;
    bool first = true;
    do {
      next_piece();
      copy_rows();
      for (int64_t p = panels_.begin; p < panels_.end; ++p) {
        bf16* const weights = b_.weights;
        (g_.bits == 4 ? pair<4> : pair<8>)(*this, p, weights);
        const int64_t tiles = ceil_div(count, kTile);
        for (int64_t t = 0; t < tiles; ++t) multiply(share(count, t, tiles), p, weights, first);
      }
      first = false;
    } while (group_ < groups_of(g_));
    const int64_t column = panels_.begin * kPanel, columns = min64(panels_.end * kPanel, g_.n) - column;
    finish(b_.tile, kColumns, count, columns, g_.dtype,
           advance(g_.residual, rows_.begin * g_.residual_stride + column, g_.dtype), g_.residual_stride, g_.act,
           advance(g_.y, rows_.begin * g_.y_stride + column, g_.dtype), g_.y_stride);
  }

 private:
  // Lists the parts of the next piece.
  void next_piece() {
    count_ = 0;
    for (int64_t at = 0; group_ < groups_of(g_) && at < kDepth; at = round_up(at, 2)) {
      const Range group = rows_of(g_, group_);
      const int64_t left = group.end - group.begin - within_, taken = min64(left, kDepth - at);
      if (taken > 0) parts_[count_++] = {group_, group.begin + within_, taken, at};
      at += taken;
      within_ += taken;
      if (taken == left) ++group_, within_ = 0;
    }
  }

  void copy_rows() {
    for (int64_t r = rows_.begin; r < rows_.end; ++r) {
      const bf16* const from = static_cast<const bf16*>(g_.x) + r * g_.x_stride;
      bf16* const to = b_.x + (r - rows_.begin) * kStride;
      for (int64_t i = 0; i < count_; ++i) {
        const Part& part = parts_[i];
        copy_vectors(from + part.k, part.count, part.padded(), to + part.at);
        if (g_.offset == nullptr) continue;
        b_.sums[(r - rows_.begin) * kMostParts + i] = sum_of_all(to + part.at, part.padded());
      }
    }
  }

  static float sum_of_all(const bf16* x, int64_t count) {
    vf sum = {};
    int64_t i = 0;
    for (; i + kWidth <= count; i += kWidth) sum += load(x + i);
    float total = aotpack::kernels::sum_of(sum);
    for (; i < count; ++i) total += to_float(x[i]);
    return total;
  }

  // The numbers of a panel in this piece, pairs of rows of it by column: 0 to 15, then 16 to 31.
  template <int kBits>
  static void pair(const Block& block, int64_t panel, bf16* to) {
    constexpr int64_t kBytes = kPanel * kBits / 8;
    constexpr __mmask32 kUpper = 0xaaaaaaaa;
    const auto* const weight = static_cast<const uint8_t*>(block.g_.w_packed) + panel * block.g_.k * kBytes;
    for (int64_t p = 0; p < block.count_; ++p) {
      const Part& part = block.parts_[p];
      const uint8_t* w = weight + part.k * kBytes;
      bf16* at = to + part.at * kPanel;
      for (int64_t i = 0; i < part.count; i += 2, w += 2 * kBytes, at += 2 * kPanel) {
        vf even[kPanelVectors], odd[kPanelVectors] = {};
        detail::panel_row<kBits>(w, even);
        if (i + 1 < part.count) detail::panel_row<kBits>(w + kBytes, odd);
        AOTPACK_UNROLL
        for (int v = 0; v < kPanelVectors; ++v) {
          const auto lower = reinterpret_cast<__m512i>(reinterpret_cast<vu>(even[v]) >> 16);
          _mm512_storeu_si512(at + v * kPanel,
                              _mm512_mask_blend_epi16(kUpper, lower, reinterpret_cast<__m512i>(odd[v])));
        }
      }
    }
  }

  template <int kRows>
  void multiply_rows(int64_t row, int64_t panel, const bf16* weights, bool first) const {
    const int64_t i = panel - panels_.begin, groups = groups_of(g_);
    float* const tile = b_.tile + row * kColumns + i * kPanel;
    const float* const scale = g_.scale + panel * groups * kPanel;
    const float* const offset = g_.offset == nullptr ? nullptr : g_.offset + panel * groups * kPanel;
    vf total[kRows][kPanelVectors];
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) {
        total[r][v] = load((first ? bias_[i] : tile + r * kColumns) + v * kWidth);
      }
    }
    for (int64_t p = 0; p < count_; ++p) {
      const Part& part = parts_[p];
      const bf16 *x = b_.x + row * kStride + part.at, *w = weights + part.at * kPanel;
      vf sum[kRows][kPanelVectors] = {};
      for (const bf16* const end = x + part.padded(); x != end; x += 2, w += 2 * kPanel) {
        const auto low = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w)),
                   high = reinterpret_cast<__m512bh>(_mm512_loadu_si512(w + kPanel));
        AOTPACK_UNROLL
        for (int r = 0; r < kRows; ++r) {
          float both;
          std::memcpy(&both, x + r * kStride, sizeof both);
          const auto repeated = reinterpret_cast<__m512bh>(vset(both));
          sum[r][0] = reinterpret_cast<vf>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum[r][0]), repeated, low));
          sum[r][1] = reinterpret_cast<vf>(_mm512_dpbf16_ps(reinterpret_cast<__m512>(sum[r][1]), repeated, high));
        }
      }
      AOTPACK_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) {
        const vf s = load(scale + part.group * kPanel + v * kWidth);
        AOTPACK_UNROLL
        for (int r = 0; r < kRows; ++r) total[r][v] += sum[r][v] * s;
      }
      if (offset == nullptr) continue;
      AOTPACK_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) {
        const vf added = load(offset + part.group * kPanel + v * kWidth);
        AOTPACK_UNROLL
        for (int r = 0; r < kRows; ++r) total[r][v] += added * vset(b_.sums[(row + r) * kMostParts + p]);
      }
    }
    AOTPACK_UNROLL
    for (int r = 0; r < kRows; ++r) {
      AOTPACK_UNROLL
      for (int v = 0; v < kPanelVectors; ++v) store(tile + r * kColumns + v * kWidth, total[r][v]);
    }
  }

  void multiply(Range rows, int64_t panel, const bf16* weights, bool first) const {
    switch (rows.end - rows.begin) {
      case 1:
        return multiply_rows<1>(rows.begin, panel, weights, first);
      case 2:
        return multiply_rows<2>(rows.begin, panel, weights, first);
      case 3:
        return multiply_rows<3>(rows.begin, panel, weights, first);
      case 4:
        return multiply_rows<4>(rows.begin, panel, weights, first);
      case 5:
        return multiply_rows<5>(rows.begin, panel, weights, first);
      default:
        return multiply_rows<kTile>(rows.begin, panel, weights, first);
    }
  }

  const QuantizedLinearArgs& g_;
  const QuantizedBf16Buffers& b_;
  const Range rows_, panels_;
  int64_t group_ = 0, within_ = 0;  // where the next piece begins
  int64_t count_ = 0;
  Part parts_[kMostParts];
  alignas(64) float bias_[kQuantizedBf16Panels][kPanel];
};

}  // namespace

bool quantized_takes_bf16(const QuantizedLinearArgs& g) { return g.dtype == DType::bf16 && bf16_works(); }

QuantizedBf16Buffers quantized_bf16_buffers(const QuantizedLinearArgs& g, Scratch& from) {
  const int64_t rows = min64(g.m, kQuantizedBf16Rows);
  QuantizedBf16Buffers b = {};
  b.x = from.take<bf16>(rows * kStride);
  b.weights = from.take<bf16>(kDepth * kPanel);
  b.sums = from.take<float>(g.offset == nullptr ? 0 : rows * kMostParts);
  b.tile = from.take<float>(rows * kColumns);
  return b;
}

void quantized_bf16_block(const QuantizedLinearArgs& g, const QuantizedBf16Buffers& b, Range rows, Range panels) {
  Block(g, b, rows, panels).run();
}

#else

bool quantized_takes_bf16(const QuantizedLinearArgs&) { return false; }
// Never called.
QuantizedBf16Buffers quantized_bf16_buffers(const QuantizedLinearArgs&, Scratch&) { return {}; }
void quantized_bf16_block(const QuantizedLinearArgs&, const QuantizedBf16Buffers&, Range, Range) {}

#endif

}  // namespace aotpack::kernels
