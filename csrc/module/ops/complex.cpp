// What is left of complex tensors when the build has taken them apart: views by which parts are reached.
#include "declare/complex.h"

#include <complex>

#include "ops/slices.h"
#include "shim.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// Along each line of `dim`: sums in `Wide` of what came before, begun with `first`, to = sum = op(sum, from).
template <typename T, typename Wide, typename Op>
void scan(const Tensor* from, const Tensor* to, int32_t dim, std::complex<Wide> first, double nanoseconds, Op op) {
  const Around around(to, dim);
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(from->sizes, from->sizes + from->rank, sizes);
  if (from->rank > 0) sizes[dim] = 1;
  const int64_t lines = around.outer * around.inner, step = from->rank > 0 ? from->strides[dim] : 0;
  const int64_t write = from->rank > 0 ? to->strides[dim] : 0;
  const double cost = nanoseconds * static_cast<double>(around.size);
  for_parts(parts_for(lines, cost), lines, [&](int64_t, int64_t begin, int64_t end) {
    Walk<2> walk(from->rank, sizes);
    walk.add(0, from->strides);
    walk.add(1, to->strides);
    walk.seek(begin);
    for (int64_t line = begin; line < end; ++line, walk.next()) {
      const T* source = from->as<T>() + 2 * walk.offset[0];
      T* destination = to->as<T>() + 2 * walk.offset[1];
      std::complex<Wide> sum = first;
      for (int64_t i = 0; i < around.size; ++i) {
        sum = op(sum, std::complex<Wide>(source[2 * i * step], source[2 * i * step + 1]), i == 0);
        destination[2 * i * write] = static_cast<T>(sum.real());
        destination[2 * i * write + 1] = static_cast<T>(sum.imag());
      }
    }
  });
}

template <typename T>
void cumprod(const Tensor* from, const Tensor* to, int32_t dim) {
  scan<T, T>(from, to, dim, {1, 0}, 2.0, [](std::complex<T> a, std::complex<T> b, bool first) {
    const T re = a.real() * b.real() - a.imag() * b.imag(), im = a.real() * b.imag() + a.imag() * b.real();
    return first ? b : std::complex<T>(re, im);
  });
}

using Complex = std::complex<double>;

// log(1 + z), exact where z is small: the logarithm of |1 + z|, whose square is 1 + x (2 + x) + y^2.
Complex log1p(Complex z) {
  const double x = z.real(), y = z.imag(), angle = std::atan2(y, x + 1);
  if (std::hypot(x, y) >= 0.5) return {std::log(std::hypot(x + 1, y)), angle};
  const double square = x * (2 + x) + y * y;
  return {square == 0 ? x : 0.5 * std::log1p(square), angle};
}

// log(exp(sum) + exp(x)), in its special values as torch has it. The smaller real part is subtracted from.
Complex log_add_exp(Complex sum, Complex x) {
  const auto none = [](Complex z) { return std::isnan(z.real()) || std::isnan(z.imag()); };
  if (none(sum) || none(x)) return {std::nan(""), std::nan("")};
  const Complex least = x.real() < sum.real() ? x : sum, most = x.real() < sum.real() ? sum : x;
  if (least.real() == most.real() && std::isinf(least.real())) {
    // Of exp(-inf) there is no angle; of what is infinite the sum has one.
    return least.real() < 0 ? least : std::log(std::exp(least) + std::exp(most));
  }
  return log1p(std::exp(least - most)) + most;
}

template <typename T>
void logcumsumexp(const Tensor* from, const Tensor* to, int32_t dim) {
  scan<T, double>(from, to, dim, {-HUGE_VAL, 0}, 60.0, [](Complex a, Complex b, bool) { return log_add_exp(a, b); });
}

// A scan along `dim` into a tensor of its own, contiguous.
template <typename OfFloat, typename OfDouble>
Tensor* scanned(const Tensor* self, int64_t dim, const char* op, OfFloat of_float, OfDouble of_double) {
  if (!is_complex_dtype(self->dtype)) throw_invalid(std::string(op) + " of real numbers");
  const int32_t axis = wrap_dim(dim, self->rank);
  Owned result(Call::current().empty_contiguous(self->rank, self->sizes, self->dtype));
  if (self->numel() > 0) {
    self->dtype == AOTPACK_DTYPE_COMPLEX64 ? of_float(self, result.get(), axis) : of_double(self, result.get(), axis);
  }
  return result.release();
}

}  // namespace

void aoti_torch_cpu_view_as_real(AotpackTensor self, AotpackTensor* ret0) {
  if (!is_complex_dtype(self->dtype)) throw_invalid("view_as_real is only supported for complex tensors");
  if (self->rank + 1 > AOTPACK_MAX_RANK) throw_invalid("view_as_real of a tensor of too many dims");
  Tensor* view = Call::current().retain(self);
  view->dtype = self->dtype == AOTPACK_DTYPE_COMPLEX64 ? AOTPACK_DTYPE_FLOAT32 : AOTPACK_DTYPE_FLOAT64;
  for (int32_t d = 0; d < self->rank; ++d) view->strides[d] = 2 * self->strides[d];
  view->sizes[self->rank] = 2;
  view->strides[self->rank] = 1;
  view->rank = self->rank + 1;
  *ret0 = view;
}

void aoti_torch_cpu_view_as_complex(AotpackTensor self, AotpackTensor* ret0) {
  if (self->dtype != AOTPACK_DTYPE_FLOAT32 && self->dtype != AOTPACK_DTYPE_FLOAT64) {
    throw_invalid(std::string("view_as_complex of ") + dtype_name(self->dtype) + " is not supported");
  }
  const int32_t last = self->rank - 1;
  if (last < 0 || self->sizes[last] != 2) throw_invalid("Tensor must have a last dimension of size 2");
  if (self->strides[last] != 1) throw_invalid("Tensor must have a last dimension with stride 1");
  for (int32_t d = 0; d < last; ++d) {
    if (self->strides[d] % 2 != 0 && self->sizes[d] > 1) {
      throw_invalid("Tensor must have a stride divisible by 2 for all but last dimension");
    }
  }
  Tensor* view = Call::current().retain(self);
  view->dtype = self->dtype == AOTPACK_DTYPE_FLOAT32 ? AOTPACK_DTYPE_COMPLEX64 : AOTPACK_DTYPE_COMPLEX128;
  view->rank = last;
  for (int32_t d = 0; d < last; ++d) view->strides[d] /= 2;
  *ret0 = view;
}

void aoti_torch_cpu_permute(AotpackTensor self, const int64_t* dims, int64_t dims_len, AotpackTensor* ret0) {
  if (dims_len != self->rank) throw_invalid("permute: the number of dims does not match the tensor's");
  Owned view(Call::current().retain(self));
  bool seen[AOTPACK_MAX_RANK] = {};
  for (int32_t d = 0; d < self->rank; ++d) {
    const int32_t from = wrap_dim(dims[d], self->rank);
    if (seen[from]) throw_invalid("permute: duplicate dims are not allowed");
    seen[from] = true;
    view->sizes[d] = self->sizes[from];
    view->strides[d] = self->strides[from];
  }
  *ret0 = view.release();
}

void aoti_torch_cpu_complex_store(AotpackTensor self, AotpackTensor source, void*) {
  aoti_torch_copy_(self, source, 0);
}

void aoti_torch_cpu_complex_cumprod(AotpackTensor self, int64_t dim, AotpackTensor* ret0) {
  *ret0 = scanned(self, dim, "complex_cumprod", cumprod<float>, cumprod<double>);
}

void aoti_torch_cpu_complex_logcumsumexp(AotpackTensor self, int64_t dim, AotpackTensor* ret0) {
  *ret0 = scanned(self, dim, "complex_logcumsumexp", logcumsumexp<float>, logcumsumexp<double>);
}
