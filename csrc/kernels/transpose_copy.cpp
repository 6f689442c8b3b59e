#include "transpose_copy.h"

#include "parallel.h"

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

using v4 = uint32_t __attribute__((vector_size(16)));
using v4_mem = uint32_t __attribute__((vector_size(16), aligned(4), may_alias));
using v8 = uint16_t __attribute__((vector_size(16)));
using v8_mem = uint16_t __attribute__((vector_size(16), aligned(2), may_alias));
inline v4 read4(const uint32_t* p) { return *reinterpret_cast<const v4_mem*>(p); }
inline v8 read8(const uint16_t* p) { return *reinterpret_cast<const v8_mem*>(p); }
inline v8 low_pairs(v8 a, v8 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline v8 high_pairs(v8 a, v8 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }

// A square of kSquare x kSquare elements, transposed in registers.
template <class T>
struct Square {
  static constexpr int64_t side = 1;
  static void move(const T* from, int64_t, T* to, int64_t) { *to = *from; }
};
template <>
struct Square<uint32_t> {
  static constexpr int64_t side = 4;
  static void move(const uint32_t* from, int64_t fs, uint32_t* to, int64_t ts) {
    const v4 a = read4(from), b = read4(from + fs), c = read4(from + 2 * fs), d = read4(from + 3 * fs);
    const v4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const v4 ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *reinterpret_cast<v4_mem*>(to) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *reinterpret_cast<v4_mem*>(to + ts) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *reinterpret_cast<v4_mem*>(to + 2 * ts) = __builtin_shufflevector(ef, gh, 0, 1, 4, 5);
    *reinterpret_cast<v4_mem*>(to + 3 * ts) = __builtin_shufflevector(ef, gh, 2, 3, 6, 7);
  }
};
template <>
struct Square<uint16_t> {
  static constexpr int64_t side = 8;
  static void move(const uint16_t* from, int64_t fs, uint16_t* to, int64_t ts) {
    v8 a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = read8(from + i * fs);
    for (int round = 0; round < 3; ++round) {  // three perfect shuffles make a transposition
      for (int i = 0; i < 4; ++i) {
        b[2 * i] = low_pairs(a[i], a[i + 4]);
        b[2 * i + 1] = high_pairs(a[i], a[i + 4]);
      }
      for (int i = 0; i < 8; ++i) a[i] = b[i];
    }
    for (int i = 0; i < 8; ++i) *reinterpret_cast<v8_mem*>(to + i * ts) = a[i];
  }
};

// to[c * to_stride + r] = from[r * from_stride + c]: contiguous along c in src, along r in dst.
template <class T>
void transpose(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kSide = Square<T>::side;
  for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    const int64_t r1 = min64(r0 + kBlock, rows);
    for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const int64_t c1 = min64(c0 + kBlock, columns);
      int64_t r = r0;
      for (; r + kSide <= r1; r += kSide) {
        int64_t c = c0;
        for (; c + kSide <= c1; c += kSide) {
          Square<T>::move(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
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
