// What is left of complex tensors when the build has taken them apart: views by which parts are reached.
#include "declare/complex.h"

#include "ops/slices.h"
#include "shim.h"

using namespace aotpack::module;

namespace {

template <typename T>
void cumprod(const Tensor* from, const Tensor* to, int32_t dim) {
  const Around around(to, dim);
  int64_t sizes[AOTPACK_MAX_RANK];
  std::copy(from->sizes, from->sizes + from->rank, sizes);
  if (from->rank > 0) sizes[dim] = 1;
  const int64_t lines = around.outer * around.inner, step = from->rank > 0 ? from->strides[dim] : 0;
  const int64_t write = from->rank > 0 ? to->strides[dim] : 0;
  for_parts(parts_for(lines, 2.0 * static_cast<double>(around.size)), lines, [&](int64_t, int64_t begin, int64_t end) {
    Walk<2> walk(from->rank, sizes);
    walk.add(0, from->strides);
    walk.add(1, to->strides);
    walk.seek(begin);
    for (int64_t line = begin; line < end; ++line, walk.next()) {
      const T* source = from->as<T>() + 2 * walk.offset[0];
      T* destination = to->as<T>() + 2 * walk.offset[1];
      T re = 1, im = 0;
      for (int64_t i = 0; i < around.size; ++i) {
        const T a = source[2 * i * step], b = source[2 * i * step + 1];
        const T next = i == 0 ? a : re * a - im * b;
        im = i == 0 ? b : re * b + im * a;
        re = next;
        destination[2 * i * write] = re;
        destination[2 * i * write + 1] = im;
      }
    }
  });
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
  if (!is_complex_dtype(self->dtype)) throw_invalid("complex_cumprod of real numbers");
  const int32_t axis = wrap_dim(dim, self->rank);
  Owned result(Call::current().empty_contiguous(self->rank, self->sizes, self->dtype));
  if (self->numel() > 0) {
    if (self->dtype == AOTPACK_DTYPE_COMPLEX64) {
      cumprod<float>(self, result.get(), axis);
    } else {
      cumprod<double>(self, result.get(), axis);
    }
  }
  *ret0 = result.release();
}
