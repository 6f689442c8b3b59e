// Operators whose result's size depends on values: what a mask selects, where the non-zeros are, how often to repeat.
#include "declare/mask.h"

#include "ops/nonzero.h"
#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

int64_t count_true(const Tensor* mask) {  // contiguous, of bytes
  const uint8_t* m = mask->as<uint8_t>();
  const int64_t n = mask->numel();
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += m[i] != 0;
  return count;
}

void check_mask(const Tensor* mask, const char* name) {
  if (mask->dtype != AOTPACK_DTYPE_BOOL)
    throw_invalid(std::string(name) + ": expected a bool mask, got " + dtype_name(mask->dtype));
}

}  // namespace

void aoti_torch_cpu_nonzero(AotpackTensor self, AotpackTensor* ret0) {
  Owned dense(contiguous(self));
  Owned places(places_of_nonzero(dense.get()));
  // torch gives [count, rank] with the columns dense.
  const int64_t sizes[2] = {places->sizes[1], places->sizes[0]}, strides[2] = {1, places->sizes[1]};
  *ret0 = Call::current().view(places.get(), 2, sizes, strides, 0);
}

void aoti_torch_cpu_nonzero_static(AotpackTensor self, int64_t size, int64_t fill_value, AotpackTensor* ret0) {
  if (size < 0) throw_invalid("nonzero_static: 'size' must be an non-negative integer");
  Owned dense(contiguous(self));
  Owned places(places_of_nonzero(dense.get()));
  const int64_t rank = places->sizes[0], count = places->sizes[1];
  const int64_t sizes[2] = {size, rank};
  Owned result(Call::current().empty_contiguous(2, sizes, AOTPACK_DTYPE_INT64));
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t d = 0; d < rank; ++d) {
      result->as<int64_t>()[i * rank + d] = i < count ? places->as<int64_t>()[d * count + i] : fill_value;
    }
  }
  *ret0 = result.release();
}

void aoti_torch_cpu_masked_select(AotpackTensor self, AotpackTensor mask, AotpackTensor* ret0) {
  check_mask(mask, "masked_select");
  int64_t shape[AOTPACK_MAX_RANK];
  const int32_t rank = broadcast_sizes(self, mask, shape);
  Owned source(expand(self, rank, shape)), wide(expand(mask, rank, shape));
  Owned holds(contiguous(wide.get()));
  const int64_t count = count_true(holds.get());
  Owned result(Call::current().empty_contiguous(1, &count, self->dtype));
  dispatch_size(self->dtype, [&]<typename T>(T) {
    Walk<1> walk(rank, shape);
    walk.add(0, source->strides);
    T* to = result->as<T>();
    const int64_t n = holds->numel();
    for (int64_t i = 0; i < n; ++i, walk.next()) {
      if (holds->as<uint8_t>()[i] != 0) *to++ = source->as<T>()[walk.offset[0]];
    }
  });
  *ret0 = result.release();
}

void aoti_torch_cpu_masked_scatter(AotpackTensor self, AotpackTensor mask, AotpackTensor source, AotpackTensor* ret0) {
  check_mask(mask, "masked_scatter");
  if (source->dtype != self->dtype) throw_invalid("masked_scatter: expected self and source to have same dtypes");
  int64_t shape[AOTPACK_MAX_RANK];
  const int32_t rank = broadcast_sizes(self, mask, shape);
  Owned wide_self(expand(self, rank, shape)), wide_mask(expand(mask, rank, shape));
  Owned holds(contiguous(wide_mask.get())), values(contiguous(source));
  const int64_t count = count_true(holds.get());
  if (count > values->numel()) {
    throw_invalid("masked_scatter: source has " + std::to_string(values->numel()) +
                  " elements, but the mask asks for " + std::to_string(count));
  }
  Owned result(Call::current().empty_contiguous(rank, shape, self->dtype));
  copy_strided(result.get(), wide_self.get());
  dispatch_size(self->dtype, [&]<typename T>(T) {
    const T* from = values->as<T>();
    const int64_t n = holds->numel();
    for (int64_t i = 0; i < n; ++i) {
      if (holds->as<uint8_t>()[i] != 0) result->as<T>()[i] = *from++;
    }
  });
  *ret0 = result.release();
}

void aoti_torch_cpu_repeat_interleave_Tensor(AotpackTensor repeats, int64_t* output_size, AotpackTensor* ret0) {
  if (repeats->rank > 1) throw_invalid("repeat_interleave only accept 1D vector as repeat");
  if (repeats->dtype != AOTPACK_DTYPE_INT64 && repeats->dtype != AOTPACK_DTYPE_INT32) {
    throw_invalid("repeats has to be Long or Int tensor");
  }
  Owned dense(contiguous(repeats));
  dispatch(repeats->dtype, "repeat_interleave", [&]<typename T>(T) {
    const T* times = dense->as<T>();
    const int64_t n = dense->numel();
    int64_t total = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (static_cast<double>(times[i]) < 0) throw_invalid("repeats can not be negative");
      if (__builtin_add_overflow(total, static_cast<int64_t>(times[i]), &total))
        throw_invalid("repeat_interleave: the result is too large");
    }
    if (output_size != nullptr && *output_size != total) {
      throw_invalid("allocated size does not match required size: the repeats sum to " + std::to_string(total) +
                    ", output_size is " + std::to_string(*output_size));
    }
    Owned result(Call::current().empty_contiguous(1, &total, repeats->dtype));
    T* to = result->as<T>();
    for (int64_t i = 0; i < n; ++i) to = std::fill_n(to, static_cast<int64_t>(times[i]), static_cast<T>(i));
    *ret0 = result.release();
  });
}
