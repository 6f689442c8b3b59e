// Runs the steps of a variant that is not direct: collects the tensors of each step and keeps its results.
#pragma once

#include <cstddef>
#include <vector>

#include "aotpack/module_abi.h"
#include "call/inputs.h"
#include "call/workspace.h"
#include "hal/imports.h"
#include "model/variant.h"

namespace aotpack::runtime {

// The steps of one variant in one context; reused from call to call. Belongs to one thread at a time.
//
// Values between steps and outputs are finished as soon as a step has made them: dense in their order, in memory of
// their own on their device. A value goes back to the allocator after its last use. What a step reads that lies on
// another device is copied first; what it writes to is copied back.
class Steps {
 public:
  Steps(const EntryPlan& plan, const Variant& variant, const Workspace& workspace);

  // Where the next step runs, and those after it. The constructor's until then.
  void move_to(const Workspace& workspace) noexcept { workspace_ = &workspace; }
  // The tensors of a call: bound inputs, and the entry's outputs, which are empty. Throws INVALID_ARGUMENT.
  void begin(BoundInputs* inputs, std::vector<aotpack_module_tensor>* outputs);
  // Fills in inputs, outputs and stream of a step's call, and where it allocates. Throws OUT_OF_MEMORY or INTERNAL.
  void prepare(size_t step, aotpack_module_call* call, CallState* state);
  // After a step that succeeded, whose module says that its results are on `devices`: they are values or outputs now.
  // Throws INTERNAL or OUT_OF_MEMORY.
  void finish(size_t step, const aotpack_module_device* devices);
  // Gives back what a call still holds, when no work goes on any more. After every begin().
  void release() noexcept;

 private:
  // An input of a step on another device than where it lies.
  struct Copy {
    void* block;
    void* original;  // to be written back; NULL: the step does not write to it
    size_t bytes;
  };

  const ValueRecord& record_of(ReferenceRecord reference) const noexcept;
  const aotpack_module_tensor& tensor_of(ReferenceRecord reference) const noexcept;
  const uint32_t* slots_of(ReferenceRecord reference) const noexcept;
  void move_input(const ValueRecord& value, bool to_host, aotpack_module_tensor* tensor);
  void take_result(const Step& step, size_t index, aotpack_module_device device);
  void retire(void* block, bool on_host) noexcept;
  void release_retired() noexcept;

  const EntryPlan& plan_;
  const Variant& variant_;
  const Workspace* workspace_;
  std::vector<const uint32_t*> value_slots_;   // by value: those of its axes
  std::vector<const uint32_t*> output_slots_;  // by output
  BoundInputs* bound_ = nullptr;
  std::vector<aotpack_module_tensor>* outputs_ = nullptr;
  std::vector<aotpack_module_tensor> values_;   // between steps; those without a block are not there
  std::vector<aotpack_module_tensor> inputs_;   // of the current step
  std::vector<aotpack_module_tensor> results_;  // of the current step
  bool adopted_ = false;                        // every block in results_ is one reference to release
  std::vector<Copy> copies_;                    // of the current step
  std::vector<void*> retired_;                  // blocks of the host that work of the stream may still read
};

}  // namespace aotpack::runtime
