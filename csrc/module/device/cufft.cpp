#include "device/cufft.h"

#include "device/provided.h"
#include "ops/fft_layout.h"

namespace aotpack::module::cufft {

namespace {

// What the host has to say about arguments, errors among it, it says.
bool is_for_host(const Tensor* self, const FftDims& dims) { return dims.count == 0 || self->numel() == 0; }

bool transform(const char* operation, std::vector<int64_t> numbers, const FftDims& dims, const Tensor* self,
               Tensor* result, AotpackTensor* ret0) {
  Owned owned(result);
  numbers.insert(numbers.end(), dims.dims, dims.dims + dims.count);
  if (!provide(operation, {self, result}, numbers)) return false;
  *ret0 = owned.release();
  return true;
}

}  // namespace

bool fft_c2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int32_t forward,
             const int64_t* order, int64_t order_len, AotpackTensor* ret0) {
  const FftDims dims(self, dim, dim_len);
  if (!is_complex_dtype(self->dtype) || is_for_host(self, dims)) return false;
  Tensor* result = fft_result(self->rank, self->sizes, order, order_len, self->dtype);
  return transform("fft_c2c", {forward != 0, normalization}, dims, self, result, ret0);
}

bool fft_r2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int32_t onesided,
             const int64_t* order, int64_t order_len, AotpackTensor* ret0) {
  const FftDims dims(self, dim, dim_len);
  if (is_complex_dtype(self->dtype) || is_for_host(self, dims)) return false;
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(self->sizes, self->sizes + self->rank, sizes);
  if (onesided != 0) sizes[dims.last()] = sizes[dims.last()] / 2 + 1;
  const int32_t dtype = fft_complex_dtype(fft_real_dtype(self, "FFT"));
  Tensor* result = fft_result(self->rank, sizes, order, order_len, dtype);
  return transform("fft_r2c", {onesided != 0, normalization}, dims, self, result, ret0);
}

bool fft_c2r(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization, int64_t last_dim_size,
             const int64_t* order, int64_t order_len, AotpackTensor* ret0) {
  const FftDims dims(self, dim, dim_len);
  if (!is_complex_dtype(self->dtype) || is_for_host(self, dims)) return false;
  const Tensor half = half_spectrum(self, dims.last(), last_dim_size);
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(self->sizes, self->sizes + self->rank, sizes);
  sizes[dims.last()] = last_dim_size;
  Tensor* result = fft_result(self->rank, sizes, order, order_len, fft_real_dtype(self, "FFT"));
  return transform("fft_c2r", {normalization}, dims, &half, result, ret0);
}

}  // namespace aotpack::module::cufft
