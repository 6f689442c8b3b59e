#include "pack_weight.h"

#include <algorithm>

#include "parallel.h"
#include "squares.h"

namespace aotpack::kernels {
namespace {

// Columns are the pairs of an input and a tap: each becomes one row of 32 in its panel. They are walked in the order in
// which they lie in w, so that whatever is contiguous there is read in whole cache lines.
struct Column {
  int64_t size, from, to;  // steps in w, and in rows of the panel
};
struct Plan {
  Column dims[4];
  int rank;
  int64_t columns;
  int64_t run;  // so many columns at a time are contiguous in w
};

Plan plan(const PackWeightArgs& g) {
  Plan p = {};
  p.columns = g.inputs * g.kernel[0] * g.kernel[1] * g.kernel[2];
  const Column all[4] = {{g.inputs, g.input_stride, 1},
                         {g.kernel[0], g.kernel_strides[0], g.inputs * g.kernel[1] * g.kernel[2]},
                         {g.kernel[1], g.kernel_strides[1], g.inputs * g.kernel[2]},
                         {g.kernel[2], g.kernel_strides[2], g.inputs}};
  for (const Column& c : all) {
    if (c.size != 1) p.dims[p.rank++] = c;
  }
  std::stable_sort(p.dims, p.dims + p.rank, [](const Column& a, const Column& b) { return a.from > b.from; });
  p.run = 1;
  for (int d = p.rank - 1; d >= 0 && p.dims[d].from == p.run; --d) p.run *= p.dims[d].size;
  return p;
}

// Where a column lies, kept up to date while columns go by.
class Walk {
 public:
  Walk(const Plan& p, int64_t column) : p_(p) {
    for (int d = p.rank - 1; d >= 0; --d) {
      index_[d] = column % p.dims[d].size;
      column /= p.dims[d].size;
      from_ += index_[d] * p.dims[d].from;
      to_ += index_[d] * p.dims[d].to;
    }
  }
  int64_t from() const { return from_; }
  int64_t to() const { return to_; }
  void next() {
    for (int d = p_.rank - 1; d >= 0; --d) {
      const Column& c = p_.dims[d];
      from_ += c.from;
      to_ += c.to;
      if (++index_[d] < c.size) return;
      index_[d] = 0;
      from_ -= c.size * c.from;
      to_ -= c.size * c.to;
    }
  }

 private:
  const Plan& p_;
  int64_t index_[4] = {}, from_ = 0, to_ = 0;
};

// Columns [range) of one panel that has `outputs` outputs.
template <class T>
void pack_columns(const PackWeightArgs& g, const Plan& p, const T* w, int64_t outputs, Range range, T* packed) {
  using Square = detail::Square<T>;
  constexpr int64_t kSide = Square::side;
  // Columns at a time: whole cache lines of w, and few enough that their rows stay in the nearest cache.
  constexpr int64_t kColumns = 4 * 64 / static_cast<int64_t>(sizeof(T));
  const int64_t stride = g.output_stride, squares = outputs / kSide * kSide;
  Walk at(p, range.begin);
  for (int64_t column = range.begin; column < range.end;) {
    const int64_t run_end = (column / p.run + 1) * p.run;
    const int64_t count = min64(min64(kColumns, run_end - column), range.end - column);
    const int64_t square_columns = count / kSide * kSide;
    const T* from = w + at.from();
    T* rows[kColumns];
    for (int64_t c = 0; c < count; ++c, at.next()) rows[c] = packed + at.to() * kPanel;
    int64_t o = 0;
    for (; o < squares; o += kSide, from += kSide * stride) {
      for (int64_t c = 0; c < square_columns; c += kSide) {
        Square::move(from + c, stride, [&](int64_t i) { return rows[c + i] + o; });
      }
      for (int64_t c = square_columns; c < count; ++c) {
        for (int64_t i = 0; i < kSide; ++i) rows[c][o + i] = from[i * stride + c];
      }
    }
    for (; o < outputs; ++o, from += stride) {
      for (int64_t c = 0; c < count; ++c) rows[c][o] = from[c];
    }
    for (int64_t c = 0; outputs < kPanel && c < count; ++c) {
      std::memset(rows[c] + outputs, 0, static_cast<size_t>(kPanel - outputs) * sizeof(T));
    }
    column += count;
  }
}

// The same for the panels of `outputs` outputs together, which are contiguous in w.
template <class T>
void copy_columns(const Plan& p, const T* w, int64_t outputs, Range range, T* packed) {
  Walk at(p, range.begin);
  for (int64_t column = range.begin; column < range.end; ++column, at.next()) {
    const T* from = w + at.from();
    T* to = packed + at.to() * kPanel;
    int64_t left = outputs;
    for (; left >= kPanel; left -= kPanel, from += kPanel, to += p.columns * kPanel) {
      std::memcpy(to, from, static_cast<size_t>(kPanel) * sizeof(T));
    }
    if (left > 0) {
      std::memcpy(to, from, static_cast<size_t>(left) * sizeof(T));
      std::memset(to + left, 0, static_cast<size_t>(kPanel - left) * sizeof(T));
    }
  }
}

template <class T>
void pack_as(const PackWeightArgs& g) {
  const Plan p = plan(g);
  // Outputs next to each other in w: copied some panels at a time, for pages that are walked along, not across.
  const bool copied = g.output_stride == 1 && p.run == 1;
  const int64_t panels = ceil_div(g.outputs, kPanel), together = copied ? 8 : 1, blocks = ceil_div(panels, together);
  // Panels are cut into pieces too, so that a few long ones are shared among threads.
  constexpr int64_t kPiece = 4096 / static_cast<int64_t>(sizeof(T));
  const int64_t pieces = ceil_div(p.columns, kPiece);
  const double bytes = static_cast<double>(packed_weight_size(g)) * static_cast<double>(sizeof(T));
  parallel(worth_threads(bytes / 5e3, g.num_threads), [&](int thread, int threads) {
    const Range mine = share(g.groups * blocks * pieces, thread, threads);
    for (int64_t at = mine.begin; at < mine.end; ++at) {
      const int64_t piece = at % pieces, panel = at / pieces % blocks * together, group = at / pieces / blocks;
      const Range columns = {piece * kPiece, min64((piece + 1) * kPiece, p.columns)};
      const int64_t outputs = min64(together * kPanel, g.outputs - panel * kPanel);
      const T* w = static_cast<const T*>(g.w) + group * g.group_stride + panel * kPanel * g.output_stride;
      T* packed = static_cast<T*>(g.packed) + (group * panels + panel) * p.columns * kPanel;
      if (copied) {
        copy_columns(p, w, outputs, columns, packed);
      } else {
        pack_columns(g, p, w, outputs, columns, packed);
      }
    }
  });
}

}  // namespace

void pack_weight(const PackWeightArgs& g) {
  if (packed_weight_size(g) == 0) return;
  switch (g.elem_size) {
    case 1:
      return pack_as<uint8_t>(g);
    case 2:
      return pack_as<uint16_t>(g);
    case 4:
      return pack_as<uint32_t>(g);
    default:
      return pack_as<uint64_t>(g);
  }
}

}  // namespace aotpack::kernels
