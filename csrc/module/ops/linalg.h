// What the operators of linear algebra have in common: results in LAPACK's layout, batches of matrices,
// spread over threads, and the four dtypes.
#pragma once

#include "kernels/linalg/view.h"
#include "ops/slices.h"

namespace aotpack::module {

// Calls f with a value of the element type of a float or complex tensor; throws for others, naming `op`.
template <typename F>
void dispatch_linalg(const Tensor* tensor, const char* op, F f) {
  switch (tensor->dtype) {
    case AOTPACK_DTYPE_FLOAT32:
      return f(float{});
    case AOTPACK_DTYPE_FLOAT64:
      return f(double{});
    case AOTPACK_DTYPE_COMPLEX64:
      return f(linalg::Complex<float>{});
    case AOTPACK_DTYPE_COMPLEX128:
      return f(linalg::Complex<double>{});
    default:
      throw_invalid(std::string(op) + ": expected a floating point or complex tensor as input, got " +
                    dtype_name(tensor->dtype));
  }
}

inline int32_t real_dtype(int32_t dtype) {
  return dtype == AOTPACK_DTYPE_COMPLEX64    ? AOTPACK_DTYPE_FLOAT32
         : dtype == AOTPACK_DTYPE_COMPLEX128 ? AOTPACK_DTYPE_FLOAT64
                                             : dtype;
}

inline int64_t rows_of(const Tensor* tensor) { return tensor->sizes[tensor->rank - 2]; }
inline int64_t cols_of(const Tensor* tensor) { return tensor->sizes[tensor->rank - 1]; }

inline void check_same_dtype(const Tensor* a, const Tensor* b, const char* op) {
  if (a->dtype != b->dtype) {
    throw_invalid(std::string(op) + ": expected tensors of one dtype, got " + dtype_name(a->dtype) + " and " +
                  dtype_name(b->dtype));
  }
}
inline void check_matrix(const Tensor* a, const char* op) {
  if (a->rank < 2) throw_invalid(std::string(op) + ": The input tensor A must have at least 2 dimensions.");
}
inline void check_square(const Tensor* a, const char* op) {
  check_matrix(a, op);
  if (rows_of(a) != cols_of(a)) {
    throw_invalid(std::string(op) + ": A must be batches of square matrices, but they are " +
                  std::to_string(rows_of(a)) + " by " + std::to_string(cols_of(a)) + " matrices");
  }
}

// The number of matrices.
inline int64_t batch_of(const Tensor* tensor) {
  int64_t batch = 1;
  for (int32_t i = 0; i + 2 < tensor->rank; ++i) batch *= tensor->sizes[i];
  return batch;
}

// Uninitialised; the last two sizes are `rows` and `cols`, those before them the batch of `like`. Matrices are
// column-major, one after the other, unless `row_major`.
inline Tensor* empty_matrices(const Tensor* like, int64_t rows, int64_t cols, int32_t dtype, bool row_major = false) {
  int64_t sizes[AOTPACK_MAX_RANK], strides[AOTPACK_MAX_RANK];
  std::copy(like->sizes, like->sizes + like->rank, sizes);
  sizes[like->rank - 2] = rows;
  sizes[like->rank - 1] = cols;
  contiguous_strides(like->rank, sizes, strides);
  if (!row_major) {
    strides[like->rank - 2] = 1;
    strides[like->rank - 1] = std::max<int64_t>(rows, 1);
  }
  return Call::current().empty(like->rank, sizes, strides, dtype);
}
// Uninitialised and contiguous: the batch of `like`, then `size`, unless that is -1.
inline Tensor* empty_vectors(const Tensor* like, int64_t size, int32_t dtype) {
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(like->sizes, like->sizes + like->rank - 2, sizes);
  if (size >= 0) sizes[like->rank - 2] = size;
  return Call::current().empty_contiguous(like->rank - 2 + (size >= 0 ? 1 : 0), sizes, dtype);
}
inline Tensor* empty_none(int32_t dtype) {
  const int64_t size = 0;
  return Call::current().empty_contiguous(1, &size, dtype);
}

// A copy in LAPACK's layout; `sizes` of the batch may be those that `source` is broadcast to.
inline Tensor* column_major_copy(const Tensor* source) {
  Owned copied(empty_matrices(source, rows_of(source), cols_of(source), source->dtype));
  copy_strided(copied.get(), source);
  return copied.release();
}

// `matrices` as a view with the batch of `like`, to which they are broadcast.
inline Tensor* broadcast_batch(const Tensor* matrices, const Tensor* batch) {
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(batch->sizes, batch->sizes + batch->rank, sizes);
  sizes[batch->rank - 2] = rows_of(matrices);
  sizes[batch->rank - 1] = cols_of(matrices);
  return expand(matrices, batch->rank, sizes);
}

// A view of `a`'s matrices over which those of `a` and `b` are broadcast together.
inline int32_t broadcast_batches(const Tensor* a, const Tensor* b, int64_t* sizes) {
  Tensor batch_a = *a, batch_b = *b;
  batch_a.rank -= 2;
  batch_b.rank -= 2;
  return broadcast_sizes(&batch_a, &batch_b, sizes) + 2;
}

// `a` with its batch broadcast to the first rank - 2 of `sizes`.
inline Tensor* expand_batch(const Tensor* a, int32_t rank, const int64_t* sizes) {
  int64_t full[AOTPACK_MAX_RANK];
  std::copy(sizes, sizes + rank - 2, full);
  full[rank - 2] = rows_of(a);
  full[rank - 1] = cols_of(a);
  return expand(a, rank, full);
}

// The right sides of A X = B, or of X A = B, as a view with the batches of A and B broadcast together.
inline Tensor* broadcast_sides(const Tensor* a, const Tensor* b, bool left, const char* op) {
  check_matrix(b, op);
  check_same_dtype(a, b, op);
  if ((left ? rows_of(b) : cols_of(b)) != rows_of(a)) {
    throw_invalid(std::string(op) + ": Incompatible shapes of A and B for the equation " +
                  (left ? "AX = B" : "XA = B") + " (" + std::to_string(rows_of(a)) + "x" + std::to_string(cols_of(a)) +
                  " and " + std::to_string(rows_of(b)) + "x" + std::to_string(cols_of(b)) + ")");
  }
  int64_t sizes[AOTPACK_MAX_RANK];
  const int32_t rank = broadcast_batches(a, b, sizes);
  return expand_batch(b, rank, sizes);
}
// Uninitialised, for the solution of these right sides: its columns, or its rows, lie next to each other.
inline Tensor* empty_solution(const Tensor* sides, bool left) {
  return empty_matrices(sides, rows_of(sides), cols_of(sides), sides->dtype, !left);
}

inline Tensor* transposed(const Tensor* a) {
  int64_t sizes[AOTPACK_MAX_RANK], strides[AOTPACK_MAX_RANK];
  std::copy(a->sizes, a->sizes + a->rank, sizes);
  std::copy(a->strides, a->strides + a->rank, strides);
  std::swap(sizes[a->rank - 1], sizes[a->rank - 2]);
  std::swap(strides[a->rank - 1], strides[a->rank - 2]);
  return Call::current().borrow(a->data, a->rank, sizes, strides, a->dtype);
}

// The matrices of a tensor, of any strides, by their number.
template <typename T>
class Matrices {
 public:
  explicit Matrices(const Tensor* tensor) : tensor_(tensor) {}
  linalg::View<T> operator[](int64_t number) const {
    T* data = reinterpret_cast<T*>(tensor_->data);
    for (int32_t d = tensor_->rank - 3; d >= 0; --d) {
      data += number % tensor_->sizes[d] * tensor_->strides[d];
      number /= tensor_->sizes[d];
    }
    const int32_t r = tensor_->rank;
    return {data, tensor_->sizes[r - 2], tensor_->sizes[r - 1], tensor_->strides[r - 2], tensor_->strides[r - 1]};
  }

 private:
  const Tensor* tensor_;
};

// f(number, arena) for each matrix of a batch; every thread has an arena of `bytes`. f must neither throw nor touch
// the Call. `operations`: floating-point operations for one matrix, of which a thread does about one in a nanosecond.
template <typename F>
void for_matrices(int64_t batch, double operations, int64_t bytes, F f) {
  if (batch == 0) return;
  const int64_t parts = parts_for(batch, operations + 100);
  bytes = linalg::Arena::room<char>(bytes);
  Scratch scratch(parts * bytes);
  for_parts(parts, batch, [&](int64_t part, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i, linalg::Arena(scratch.as<char>() + part * bytes, bytes));
  });
}

}  // namespace aotpack::module
