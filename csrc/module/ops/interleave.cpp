// Interleaves the channels of tensors.
#include "kernels/interleave.h"

#include <deque>
#include <vector>

#include "declare/interleave.h"
#include "ops/channels_last.h"
#include "ops/common.h"
#include "tensor.h"
#include "trace.h"

using namespace aotpack::module;

void aoti_torch_cpu_interleave(const AotpackTensor* parts, int64_t parts_count, AotpackTensor* ret0) {
  Call& call = Call::current();
  if (parts_count < 1 || parts[0]->rank < 3) throw_invalid("interleave: there must be tensors of rank 3 or more");
  const Tensor* const first = parts[0];
  Trace trace("interleave");
  std::deque<Pixels> sources;
  std::vector<const void*> data;
  std::vector<int64_t> steps;
  for (int64_t i = 0; i < parts_count; ++i) {
    Tensor* const part = parts[i];
    bool alike = part->rank == first->rank && part->dtype == first->dtype;
    for (int32_t d = 0; alike && d < part->rank; ++d) alike = part->sizes[d] == first->sizes[d];
    if (!alike) throw_invalid("interleave: tensors have different sizes or dtypes");
    const Pixels& source = sources.emplace_back(part);
    trace.tensor("part", part, source.get());
    data.push_back(source.data());
    steps.push_back(source.step());
  }
  int64_t sizes[AOTPACK_MAX_RANK], strides[AOTPACK_MAX_RANK], pixels = 1;
  for (int32_t d = 0; d < first->rank; ++d) {
    sizes[d] = d == 1 ? first->sizes[1] * parts_count : first->sizes[d];
    if (d != 1) pixels *= first->sizes[d];
  }
  channels_last_strides(first->rank, sizes, strides);
  Owned y(call.empty(first->rank, sizes, strides, first->dtype));
  aotpack::kernels::interleave({pixels, first->sizes[1], parts_count, data.data(), steps.data(), y->data,
                                element_size(first->dtype), call.num_threads()});
  *ret0 = y.release();
}
