#include "transpose_copy.h"

#include <utility>

#include "parallel.h"
#include "squares.h"

namespace aotpack::kernels {
namespace {

constexpr int64_t kMaxRank = 16;
constexpr int64_t kBlock = 32;  // side of a square that is transposed within the nearest cache

struct Dims {
  int64_t rank = 0;
  int64_t size[kMaxRank], from[kMaxRank], to[kMaxRank];  // strides in elements
};

// Drops dims of size 1 and joins dims that lie in src as they do in dst.
Dims simplify(int64_t rank, const int64_t* sizes, const int64_t* strides) {
  Dims d;
  for (int64_t i = 0; i < rank; ++i) {
    if (sizes[i] == 1) continue;
    if (d.rank > 0 && d.from[d.rank - 1] == strides[i] * sizes[i]) {
      d.size[d.rank - 1] *= sizes[i];
      d.from[d.rank - 1] = strides[i];
    } else {
      d.size[d.rank] = sizes[i];
      d.from[d.rank++] = strides[i];
    }
  }
  int64_t step = 1;
  for (int64_t i = d.rank - 1; i >= 0; --i) {
    d.to[i] = step;
    step *= d.size[i];
  }
  return d;
}

struct Wide {
  uint64_t low, high;
};

typedef uint8_t Bytes __attribute__((vector_size(16)));
using Sixteen = std::make_integer_sequence<int, 16>;

// The part-th 16 of the bytes of kRows rows, side by side: with those of the first two rows, or with one more.
template <int kRows, int kPart, int... i>
Bytes first_two(Bytes a, Bytes b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, ((kPart * 16 + i) % kRows == 1 ? 16 : 0) + (kPart * 16 + i) / kRows...);
}
template <int kRows, int kPart, int kRow, int... i>
Bytes one_more(Bytes some, Bytes row, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(some, row, ((kPart * 16 + i) % kRows == kRow ? 16 + (kPart * 16 + i) / kRows : i)...);
}

template <int kRows, int kPart>
void interleave_bytes(const Bytes* rows, uint8_t* to) {
  Bytes bytes = first_two<kRows, kPart>(rows[0], rows[1], Sixteen{});
  if constexpr (kRows > 2) bytes = one_more<kRows, kPart, 2>(bytes, rows[2], Sixteen{});
  if constexpr (kRows > 3) bytes = one_more<kRows, kPart, 3>(bytes, rows[3], Sixteen{});
  std::memcpy(to + kPart * 16, &bytes, 16);
  if constexpr (kPart + 1 < kRows) interleave_bytes<kRows, kPart + 1>(rows, to);
}

// transpose for so few rows that they fill no square, that lie side by side in dst.
template <int kRows, class T>
void interleave(const T* __restrict from, int64_t from_stride, T* __restrict to, int64_t columns) {
  int64_t c = 0;
  if constexpr (sizeof(T) == 1) {  // which compilers do one by one
    for (; c + 16 <= columns; c += 16) {
      Bytes rows[kRows];
      for (int r = 0; r < kRows; ++r) std::memcpy(&rows[r], from + r * from_stride + c, 16);
      interleave_bytes<kRows, 0>(rows, to + c * kRows);
    }
  }
  for (; c < columns; ++c) {
    for (int r = 0; r < kRows; ++r) to[c * kRows + r] = from[r * from_stride + c];
  }
}

// to[c * to_stride + r] = from[r * from_stride + c]: contiguous along c in src, along r in dst.
template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  using Square = detail::Square<T>;
  constexpr int64_t kSide = Square::side;
  if (rows == to_stride && (rows < kSide || kSide == 1)) {
    if (rows == 2) return interleave<2>(from, from_stride, to, columns);
    if (rows == 3) return interleave<3>(from, from_stride, to, columns);
    if (rows == 4) return interleave<4>(from, from_stride, to, columns);
  }
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    const int64_t r1 = min64(r0 + kBlock, rows);
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const int64_t c1 = min64(c0 + kBlock, columns);
      int64_t r = r0;
      for (; r + kSide <= r1; r += kSide) {
        int64_t c = c0;
        for (; c + kSide <= c1; c += kSide) {
          Square::move(from + r * from_stride + c, from_stride,
                       [&](int64_t i) { return to + (c + i) * to_stride + r; });
        }
        for (; c < c1; ++c) {
          for (int64_t i = r; i < r + kSide; ++i) to[c * to_stride + i] = from[i * from_stride + c];
        }
      }
      for (; r < r1; ++r) {
        for (int64_t c = c0; c < c1; ++c) to[c * to_stride + r] = from[r * from_stride + c];
      }
    }
  }
}

// Calls body(from offset, to offset) for items [range) of the dims in `outer`, in row-major order.
template <class Body>
void walk(const Dims& d, const int64_t* outer, int64_t outer_rank, Range range, const Body& body) {
  int64_t index[kMaxRank] = {}, from = 0, to = 0, rest = range.begin;
  for (int64_t i = outer_rank - 1; i >= 0; --i) {
    index[i] = rest % d.size[outer[i]];
    rest /= d.size[outer[i]];
    from += index[i] * d.from[outer[i]];
    to += index[i] * d.to[outer[i]];
  }
  for (int64_t item = range.begin; item < range.end; ++item) {
    body(from, to);
    for (int64_t i = outer_rank - 1; i >= 0; --i) {
      const int64_t dim = outer[i];
      from += d.from[dim];
      to += d.to[dim];
      if (++index[i] < d.size[dim]) break;
      index[i] = 0;
      from -= d.size[dim] * d.from[dim];
      to -= d.size[dim] * d.to[dim];
    }
  }
}

template <class T>
void copy(T* dst, const T* src, const Dims& d, int num_threads) {
  if (d.rank == 0) {
    *dst = *src;
    return;
  }
  const int64_t last = d.rank - 1;
  int64_t total = 1;
  for (int64_t i = 0; i < d.rank; ++i) total *= d.size[i];
  int64_t unit = -1;  // the dim that is contiguous in src, if it is another than dst's
  for (int64_t i = 0; i < last && d.from[last] != 1; ++i) {
    if (d.from[i] == 1) unit = i;
  }
  int64_t outer[kMaxRank], outer_rank = 0, items = 1;
  for (int64_t i = 0; i < last; ++i) {
    if (i == unit) continue;
    outer[outer_rank++] = i;
    items *= d.size[i];
  }
  // The innermost work is cut into pieces too, so that one large matrix is shared as well.
  const int64_t length = unit >= 0 ? d.size[unit] : d.size[last];
  const int64_t piece = unit >= 0 ? kBlock : 8192, pieces = ceil_div(length, piece);
  const double bytes = static_cast<double>(total) * static_cast<double>(sizeof(T));
  parallel(worth_threads(bytes / (unit >= 0 ? 5e3 : 10e3), num_threads), [&](int thread, int threads) {
    const Range mine = share(items * pieces, thread, threads);
    for (int64_t at = mine.begin; at < mine.end;) {
      const int64_t item = at / pieces, first = at % pieces;
      const int64_t count = min64(pieces - first, mine.end - at);
      // Whole items in one walk, otherwise a part of one.
      const int64_t whole = first == 0 ? (mine.end - at) / pieces : 0;
      const Range range = {item, item + max64(whole, 1)};
      const int64_t begin = whole > 0 ? 0 : first * piece;
      const int64_t end = whole > 0 ? length : min64((first + count) * piece, length);
      walk(d, outer, outer_rank, range, [&](int64_t from, int64_t to) {
        const T* s = src + from;
        T* t = dst + to;
        if (unit >= 0) {
          transpose(s + begin, d.from[last], t + begin * d.to[unit], d.to[unit], d.size[last], end - begin);
        } else if (d.from[last] == 1) {
          std::memcpy(t + begin, s + begin, static_cast<size_t>(end - begin) * sizeof(T));
        } else {
          for (int64_t i = begin; i < end; ++i) t[i] = s[i * d.from[last]];
        }
      });
      at += whole > 0 ? whole * pieces : count;
    }
  });
}

}  // namespace

void transpose_copy(void* dst, const void* src, int64_t rank, const int64_t* sizes, const int64_t* src_strides,
                    int64_t elem_size, int num_threads) {
  for (int64_t i = 0; i < rank; ++i) {
    if (sizes[i] == 0) return;
  }
  const Dims d = simplify(rank, sizes, src_strides);
  switch (elem_size) {
    case 1:
      return copy(static_cast<uint8_t*>(dst), static_cast<const uint8_t*>(src), d, num_threads);
    case 2:
      return copy(static_cast<uint16_t*>(dst), static_cast<const uint16_t*>(src), d, num_threads);
    case 4:
      return copy(static_cast<uint32_t*>(dst), static_cast<const uint32_t*>(src), d, num_threads);
    case 8:
      return copy(static_cast<uint64_t*>(dst), static_cast<const uint64_t*>(src), d, num_threads);
    default:
      return copy(static_cast<Wide*>(dst), static_cast<const Wide*>(src), d, num_threads);
  }
}

}  // namespace aotpack::kernels
