// What the operators of this folder share: dims, strides, broadcasting, threads.
#pragma once

#include <algorithm>

#include "operators.h"
#include "ops/dtype.h"
#include "tensor.h"

namespace aotpack::module {

// A dim in [-rank, rank) as one in [0, rank); a tensor of rank 0 takes 0 and -1.
inline int32_t wrap_dim(int64_t dim, int32_t rank) {
  const int64_t bound = std::max(rank, 1);
  if (dim < -bound || dim >= bound) {
    throw_invalid("Dimension out of range (expected to be in range of [" + std::to_string(-bound) + ", " +
                  std::to_string(bound - 1) + "], but got " + std::to_string(dim) + ")");
  }
  return static_cast<int32_t>(dim < 0 ? dim + bound : dim);
}

[[noreturn]] inline void throw_index(int64_t index, int64_t dim, int64_t size) {
  throw_invalid("index " + std::to_string(index) + " is out of bounds for dimension " + std::to_string(dim) +
                " with size " + std::to_string(size));
}

// Strides without holes in the order of `strides`: what torch gives to a result that keeps its input's memory format.
// The order is TensorIterator's: an insertion sort in which a stride of 0 compares equal to all.
void dense_strides(int32_t rank, const int64_t* sizes, const int64_t* strides, int64_t* dense);

// The broadcast of a and b; throws where they do not.
int32_t broadcast_sizes(const Tensor* a, const Tensor* b, int64_t* sizes);
// A view of `source` with these sizes: size-1 and missing dims have stride 0.
Tensor* expand(const Tensor* source, int32_t rank, const int64_t* sizes);

// A copy of `source` with the given dtype, contiguous.
Tensor* convert_contiguous(const Tensor* source, int32_t dtype);

// A tensor seen as [outer, size, inner] around `dim`; of rank 0 as [1, 1, 1].
struct Around {
  int64_t outer = 1, size = 1, inner = 1;
  Around(const Tensor* tensor, int32_t dim) {
    for (int32_t i = 0; i < tensor->rank; ++i) (i < dim ? outer : i > dim ? inner : size) *= tensor->sizes[i];
  }
};

// How many parts to cut `items` into, each of which costs about `nanoseconds`: 1 unless there is work for more threads
// than this one.
inline int64_t parts_for(int64_t items, double nanoseconds) {
  const int64_t threads = Call::current().num_threads();
  if (threads <= 1 || static_cast<double>(items) * nanoseconds < 50e3) return 1;
  return std::min(threads, items);
}

// f(part, begin, end) on `parts` equal ranges of [0, items). f must not throw, allocate or touch the Call when parts
// > 1.
template <typename F>
void for_parts(int64_t parts, int64_t items, F f) {
  if (parts <= 1) return f(int64_t{0}, int64_t{0}, items);
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) {
    f(part, items / parts * part + std::min(part, items % parts),
      items / parts * (part + 1) + std::min(part + 1, items % parts));
  }
}

// The offsets, in elements, of one position in several strided views of equal sizes, advanced in row-major order.
template <int Views>
class Walk {
 public:
  Walk(int32_t rank, const int64_t* sizes) : rank_(rank), sizes_(sizes) {}
  void add(int view, const int64_t* strides) { strides_[view] = strides; }
  int64_t offset[Views] = {};

  void seek(int64_t position) {
    for (int64_t& o : offset) o = 0;
    for (int32_t d = rank_ - 1; d >= 0; --d) {
      index_[d] = sizes_[d] == 0 ? 0 : position % sizes_[d];
      position = sizes_[d] == 0 ? 0 : position / sizes_[d];
      for (int v = 0; v < Views; ++v) offset[v] += index_[d] * strides_[v][d];
    }
  }
  void next() {
    for (int32_t d = rank_ - 1; d >= 0; --d) {
      for (int v = 0; v < Views; ++v) offset[v] += strides_[v][d];
      if (++index_[d] < sizes_[d]) return;
      for (int v = 0; v < Views; ++v) offset[v] -= index_[d] * strides_[v][d];
      index_[d] = 0;
    }
  }
  int64_t index(int32_t d) const { return index_[d]; }

 private:
  int32_t rank_;
  const int64_t* sizes_;
  const int64_t* strides_[Views] = {};
  int64_t index_[AOTPACK_MAX_RANK] = {};
};

}  // namespace aotpack::module
