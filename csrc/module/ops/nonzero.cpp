#include "ops/nonzero.h"

#include "ops/dtype.h"

namespace aotpack::module {

Tensor* places_of_nonzero(const Tensor* source) {
  Tensor* result = nullptr;
  // Bools as bytes: the count must be that of the places below, whatever the bytes are.
  const int32_t dtype = source->dtype == AOTPACK_DTYPE_BOOL ? AOTPACK_DTYPE_UINT8 : source->dtype;
  dispatch(dtype, "nonzero", [&]<typename T>(T) {
    const T* x = source->as<T>();
    const int64_t n = source->numel();
    auto holds = [&](int64_t i) { return static_cast<Compute<T>>(x[i]) != Compute<T>(0); };
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += holds(i);
    const int64_t sizes[2] = {source->rank, count};
    Owned places(Call::current().empty_contiguous(2, sizes, AOTPACK_DTYPE_INT64));
    int64_t* to = places->as<int64_t>();
    int64_t index[AOTPACK_MAX_RANK] = {};
    const int32_t last = source->rank - 1;
    int64_t found = 0, i = 0;
    while (i < n) {
      const int64_t run = last < 0 ? 1 : source->sizes[last];
      for (int64_t j = 0; j < run; ++j, ++i) {
        if (!holds(i)) continue;
        for (int32_t d = 0; d < last; ++d) to[d * count + found] = index[d];
        if (last >= 0) to[last * count + found] = j;
        ++found;
      }
      for (int32_t d = last - 1; d >= 0; --d) {
        if (++index[d] < source->sizes[d]) break;
        index[d] = 0;
      }
    }
    result = places.release();
  });
  return result;
}

}  // namespace aotpack::module
