// Brings a tensor into a given dense layout.
#include "declare/layout.h"

#include <algorithm>

#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;

void aoti_torch_cpu_to_layout(AotpackTensor x, const int64_t* order, int64_t order_len, AotpackTensor* ret0) {
  Trace trace("to_layout");
  trace.moved("x", x);
  int64_t strides[AOTPACK_MAX_RANK];
  int64_t step = 1;
  for (int64_t i = order_len - 1; i >= 0; --i) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(x->sizes[order[i]], 1);
  }
  Owned y(Call::current().empty(x->rank, x->sizes, strides, x->dtype));
  copy_strided(y.get(), x);
  *ret0 = y.release();
}
