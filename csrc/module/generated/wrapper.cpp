#include "wrapper.h"

#include <vector>

#include "run_call.h"
#include "tensor.h"
#include "threads.h"

namespace aotpack::generated {

using module::Call;
using torch::aot_inductor::ConstantHandle;

void place(int64_t offset, int64_t bytes, int64_t arena_bytes) { Call::current().place(offset, bytes, arena_bytes); }

void drop(AtenTensorHandle tensor) { Call::current().drop(tensor); }

AtenTensorHandle retain(AtenTensorHandle tensor) { return Call::current().retain(tensor); }

AtenTensorHandle empty(int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype) {
  return Call::current().empty(rank, sizes, strides, dtype);
}

// `offset` counts from the view that is given.
AtenTensorHandle view(AtenTensorHandle tensor, int32_t rank, const int64_t* sizes, const int64_t* strides,
                      int64_t offset) {
  const int64_t before = (tensor->data - tensor->storage->base) / module::element_size(tensor->dtype);
  return Call::current().view(tensor, rank, sizes, strides, before + offset);
}

int32_t run(const aotpack_module_call* call, uint32_t inputs, uint32_t outputs, uint32_t constants, Function function) {
  const module::ThreadCount threads(call->num_threads);
  return module::run_function<ConstantHandle>(
      call, inputs, outputs, constants,
      [&](const std::vector<ConstantHandle>& handles, AtenTensorHandle* given, AtenTensorHandle* results) {
        function(handles.data(), given, results, call->stream);
      });
}

}  // namespace aotpack::generated
