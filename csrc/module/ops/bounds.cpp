// Checks of values, whose failure is the call's.
#include "declare/bounds.h"

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

void aoti_torch_cpu_check_bounds(AotpackTensor x, double low, double high, const char* message, AotpackTensor* ret0) {
  Owned result(convert_contiguous(x, x->dtype));
  dispatch(x->dtype, "check_bounds", [&](auto tag) {
    using T = decltype(tag);
    const T* values = result->as<T>();
    for (int64_t i = 0, n = result->numel(); i < n; ++i) {
      const double value = static_cast<double>(static_cast<Compute<T>>(values[i]));
      if (!(value >= low && value <= high)) throw_invalid(message);  // NaN is outside
    }
  });
  *ret0 = result.release();
}
