// Operators that a module for a device runs on the host, by the kernels that modules for CPUs have.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <utility>
#include <vector>

#include "device/device.h"
#include "shim/handles.h"
#include "threads.h"

namespace aotpack::module {

// One call of such an operator. While the object lives, the current call is one of the host: the operator gets copies
// of its operands in memory of the host, with their strides, and `alloc` returns memory of the host. The first copy
// waits for the stream. `finish` copies what the operator wrote and returned to the device.
//
//   HostStep step;
//   aoti_torch_cpu_cumsum(step.operand(self), dim, dtype, step.result(ret0));
//   step.finish();
//
// Every function throws what the imports of the runtime throw. What is not finished leaves nothing behind.
class HostStep {
 public:
  HostStep();
  HostStep(const HostStep&) = delete;
  HostStep& operator=(const HostStep&) = delete;

  Tensor* operand(const Tensor* tensor);
  // A null pointer stays one.
  Tensor** optional(Tensor* const* tensor);
  Tensor* const* operands(Tensor* const* tensors, int64_t count);
  Tensor* const** optional_operands(Tensor* const** tensors, int64_t count);
  // A tensor of which the operator writes every element.
  Tensor* written(Tensor* tensor);
  // Where the operator puts a result, for `to`; null for a result that nothing reads.
  Tensor** result(Tensor** to);

  void finish();

 private:
  struct Imports {
    explicit Imports(const aotpack_module_call& outer);
    std::vector<void*> functions;
    aotpack_module_call call;
  };

  Call& outer_;
  Imports imports_;
  Call call_;
  ThreadCount threads_;
  std::deque<Tensor*> handles_;
  std::deque<std::vector<Tensor*>> lists_;
  std::deque<std::vector<Tensor* const*>> optional_lists_;
  std::vector<std::pair<Tensor*, Tensor*>> written_;    // of the device, of the host
  std::vector<std::pair<Tensor**, Tensor**>> results_;  // where results go, where they are
};

// A result of such an operator, which generated code reads by what the operator's fake implementation says of devices:
// other strides are mended by a copy. Throws Error where the sizes differ.
void conform(torch::aot_inductor::RAIIAtenTensorHandle& result, std::initializer_list<int64_t> sizes,
             std::initializer_list<int64_t> strides);

}  // namespace aotpack::module
