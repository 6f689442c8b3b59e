// Matrix products by cuBLASLt, in place of a launch of this project's kernels.
#pragma once

#include "device/device.h"

namespace aotpack::module::cublaslt {

// Matrices of a batch. Strides are from one of the batch to the next, from row to row and from column to column.
struct Matrices {
  void* data;
  int32_t dtype;
  int64_t strides[3];

  Matrices transposed() const { return {data, dtype, {strides[0], strides[2], strides[1]}}; }
};
inline Matrices matrices(const Tensor* tensor, int64_t batch, int64_t rows, int64_t columns) {
  return {tensor->data, tensor->dtype, {batch, rows, columns}};
}
inline Matrices matrices(const MatrixDescriptor& described) {
  return {described.data, described.dtype, {0, static_cast<int64_t>(described.strides[0]), 1}};
}

// out = activation(alpha * (a @ b) + bias + residual). Of a batch: a [m, k], b [k, n], bias [n], and residual and out
// [m, n], contiguous.
struct Product {
  Matrices a, b;
  const Tensor* bias;      // NULL: none
  const Tensor* residual;  // NULL: none
  const Tensor* out;
  int64_t batch, m, n, k;
  double alpha;
  int32_t activation;
  bool tf32;  // float32 is multiplied in TF32
};

// Whether the library has got the work; otherwise the kernel does it.
bool compute(const Product& product);

}  // namespace aotpack::module::cublaslt
