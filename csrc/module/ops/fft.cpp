// Fourier transforms of tensors. The first axis is read where the argument lies; the others are transformed in place.
#include "declare/fft.h"

#include <cmath>

#include "kernels/fft.h"
#include "ops/fft_layout.h"
#include "tensor.h"

using namespace aotpack::module;
using aotpack::kernels::FftShape;
using Dims = FftDims;

namespace {

// 1, 1/sqrt(n) or 1/n for n points of the real or complex signal.
double factor(const int64_t* sizes, const Dims& dims, int64_t normalization) {
  if (normalization == 0) return 1;
  double points = 1;
  for (int32_t i = 0; i < dims.count; ++i) points *= static_cast<double>(sizes[dims.dims[i]]);
  return normalization == 1 ? 1 / std::sqrt(points) : 1 / points;
}

struct Strides {
  int64_t bytes[AOTPACK_MAX_RANK];
  explicit Strides(const Tensor* tensor) {
    for (int32_t d = 0; d < tensor->rank; ++d) bytes[d] = tensor->strides[d] * element_size(tensor->dtype);
  }
};

template <typename F>
void with_real(int32_t dtype, F f) {
  return dtype == AOTPACK_DTYPE_FLOAT32 ? f(float{}) : f(double{});
}

// Transforms `from` into `to`, both complex, along the dims in [0, count); the last one first.
void complex_dims(const Tensor* from, const Tensor* to, const int32_t* dims, int32_t count, bool forward,
                  double scale) {
  const int threads = Call::current().num_threads();
  const Strides read(from), write(to);
  with_real(fft_real_dtype(from, "FFT"), [&]<typename T>(T) {
    const Tensor* source = from;
    for (int32_t i = count - 1; i >= 0; --i) {
      const Strides& strides = source == from ? read : write;
      const FftShape shape{to->rank, to->sizes, strides.bytes, write.bytes, dims[i]};
      aotpack::kernels::fft_c2c<T>(shape, source->data, to->data, forward, i == 0 ? scale : 1, threads);
      source = to;
    }
  });
}

// The second half of a real signal's transform is the first one mirrored and conjugate; element `size - k` is k's.
void mirror(const Tensor* to, int32_t axis) {
  const int64_t size = to->sizes[axis], half = size / 2 + 1, stride = to->strides[axis];
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(to->sizes, to->sizes + to->rank, sizes);
  sizes[axis] = 1;
  int64_t lines = 1;
  for (int32_t d = 0; d < to->rank; ++d) lines *= sizes[d];
  with_real(fft_real_dtype(to, "FFT"), [&]<typename T>(T) {
    for_parts(parts_for(lines, static_cast<double>(size)), lines, [&](int64_t, int64_t begin, int64_t end) {
      Walk<1> walk(to->rank, sizes);
      walk.add(0, to->strides);
      walk.seek(begin);
      for (int64_t line = begin; line < end; ++line, walk.next()) {
        T* first = to->as<T>() + 2 * walk.offset[0];
        for (int64_t k = half; k < size; ++k) {
          first[2 * k * stride] = first[2 * (size - k) * stride];
          first[2 * k * stride + 1] = -first[2 * (size - k) * stride + 1];
        }
      }
    });
  });
}

}  // namespace

void aoti_torch_cpu_fft_c2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization,
                            int32_t forward, const int64_t* order, int64_t order_len, AotpackTensor* ret0) {
  if (!is_complex_dtype(self->dtype)) throw_invalid("FFT of complex numbers: the argument is real");
  const Dims dims(self, dim, dim_len);
  Owned result(fft_result(self->rank, self->sizes, order, order_len, self->dtype));
  if (dims.count == 0) {
    copy_strided(result.get(), self);
  } else if (self->numel() > 0) {
    complex_dims(self, result.get(), dims.dims, dims.count, forward != 0, factor(self->sizes, dims, normalization));
  }
  *ret0 = result.release();
}

void aoti_torch_cpu_fft_r2c(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization,
                            int32_t onesided, const int64_t* order, int64_t order_len, AotpackTensor* ret0) {
  if (is_complex_dtype(self->dtype)) throw_invalid("FFT of real numbers: the argument is complex");
  const int32_t real = fft_real_dtype(self, "FFT");
  const Dims dims(self, dim, dim_len);
  if (dims.count == 0) throw_invalid("FFT of real numbers needs a dim");
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(self->sizes, self->sizes + self->rank, sizes);
  if (onesided != 0) sizes[dims.last()] = sizes[dims.last()] / 2 + 1;
  Owned result(fft_result(self->rank, sizes, order, order_len, fft_complex_dtype(real)));
  if (self->numel() == 0) {
    if (result->numel() > 0) throw_invalid("Invalid number of data points (0) specified");
    *ret0 = result.release();
    return;
  }
  const double scale = factor(self->sizes, dims, normalization);
  const Strides read(self), write(result.get());
  with_real(real, [&]<typename T>(T) {
    const FftShape shape{self->rank, self->sizes, read.bytes, write.bytes, dims.last()};
    aotpack::kernels::fft_r2c<T>(shape, self->data, result->data, dims.count == 1 ? scale : 1,
                                 Call::current().num_threads());
  });
  if (onesided == 0) mirror(result.get(), dims.last());
  complex_dims(result.get(), result.get(), dims.dims, dims.count - 1, true, scale);
  *ret0 = result.release();
}

void aoti_torch_cpu_fft_c2r(AotpackTensor self, const int64_t* dim, int64_t dim_len, int64_t normalization,
                            int64_t last_dim_size, const int64_t* order, int64_t order_len, AotpackTensor* ret0) {
  if (!is_complex_dtype(self->dtype)) throw_invalid("inverse FFT to real numbers: the argument is real");
  const int32_t real = fft_real_dtype(self, "FFT");
  const Dims dims(self, dim, dim_len);
  if (dims.count == 0) throw_invalid("inverse FFT to real numbers needs a dim");
  const Tensor half = half_spectrum(self, dims.last(), last_dim_size);
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(self->sizes, self->sizes + self->rank, sizes);
  sizes[dims.last()] = last_dim_size;
  Owned result(fft_result(self->rank, sizes, order, order_len, real));
  if (result->numel() == 0) {
    *ret0 = result.release();
    return;
  }
  Owned between(dims.count > 1 ? Call::current().empty_contiguous(half.rank, half.sizes, half.dtype)
                               : Call::current().retain(&half));
  if (dims.count > 1) complex_dims(&half, between.get(), dims.dims, dims.count - 1, false, 1);
  const Strides read(between.get()), write(result.get());
  with_real(real, [&]<typename T>(T) {
    const FftShape shape{result->rank, result->sizes, read.bytes, write.bytes, dims.last()};
    aotpack::kernels::fft_c2r<T>(shape, between->data, result->data, factor(sizes, dims, normalization),
                                 Call::current().num_threads());
  });
  *ret0 = result.release();
}
