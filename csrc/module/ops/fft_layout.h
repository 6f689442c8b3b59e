// Arguments and results of Fourier transforms: what the operators on the host and libraries of devices have in common.
#pragma once

#include <string>

#include "ops/slices.h"

namespace aotpack::module {

// The dims of a transform, the last one last.
struct FftDims {
  int32_t count = 0;
  int32_t dims[AOTPACK_MAX_RANK];

  FftDims(const Tensor* self, const int64_t* dim, int64_t dim_len) {
    bool seen[AOTPACK_MAX_RANK] = {};
    for (int64_t i = 0; i < dim_len; ++i) {
      const int32_t d = wrap_dim(dim[i], self->rank);
      if (self->rank == 0 || seen[d]) throw_invalid("FFT dims must be unique");
      seen[d] = true;
      dims[count++] = d;
    }
  }
  int32_t last() const { return dims[count - 1]; }
};

// Of the real numbers in a tensor of real or complex ones.
inline int32_t fft_real_dtype(const Tensor* self, const char* op) {
  if (self->dtype == AOTPACK_DTYPE_COMPLEX64 || self->dtype == AOTPACK_DTYPE_FLOAT32) return AOTPACK_DTYPE_FLOAT32;
  if (self->dtype == AOTPACK_DTYPE_COMPLEX128 || self->dtype == AOTPACK_DTYPE_FLOAT64) return AOTPACK_DTYPE_FLOAT64;
  throw_invalid(std::string(op) + " of " + dtype_name(self->dtype) + " is not supported");
}

inline int32_t fft_complex_dtype(int32_t real) {
  return real == AOTPACK_DTYPE_FLOAT32 ? AOTPACK_DTYPE_COMPLEX64 : AOTPACK_DTYPE_COMPLEX128;
}

// Uninitialised and dense, with its dims in `order`, from outermost to innermost.
inline Tensor* fft_result(int32_t rank, const int64_t* sizes, const int64_t* order, int64_t order_len, int32_t dtype) {
  if (order_len != rank) throw_invalid("the order of an FFT's result must name each dim once");
  int64_t strides[AOTPACK_MAX_RANK];
  int64_t step = 1;
  for (int32_t i = rank - 1; i >= 0; --i) {
    strides[order[i]] = step;
    step *= sizes[order[i]] > 1 ? sizes[order[i]] : 1;
  }
  return Call::current().empty(rank, sizes, strides, dtype);
}

// What `fft_c2r` reads of the last dim: the half of a spectrum that determines a real signal of `size` points. Behind
// it nothing is looked at.
inline Tensor half_spectrum(const Tensor* self, int32_t dim, int64_t size) {
  if (size < 1) throw_invalid("Invalid number of data points (" + std::to_string(size) + ") specified");
  Tensor half = *self;
  half.sizes[dim] = size / 2 + 1;
  if (half.sizes[dim] > self->sizes[dim]) {
    throw_invalid("inverse FFT to " + std::to_string(size) + " real numbers of " + std::to_string(self->sizes[dim]) +
                  " complex ones");
  }
  return half;
}

}  // namespace aotpack::module
