// Checks the inputs of a call and brings them into the layout that modules expect.
#pragma once

#include <cstddef>
#include <vector>

#include "aotpack/dlpack.h"
#include "call/call_sizes.h"
#include "call/workspace.h"
#include "model/plan.h"

namespace aotpack::runtime {

// The inputs of one entry in one context; reused from call to call. Belongs to one thread at a time.
class BoundInputs {
 public:
  explicit BoundInputs(const EntryPlan& plan);

  // Checks everything, then fills tensors() and sizes(); returns the index of the variant that fits. Tensors that are
  // elsewhere than the module reads them, not dense in the model's order, or misaligned, or bools of other bytes than 0
  // and 1, are copied into memory of the workspace; such bytes are 1 in the copy. Throws INVALID_ARGUMENT in the user's
  // names, or OUT_OF_MEMORY; nothing stays held then.
  size_t bind(const DLTensor* const* inputs, size_t count, const Workspace& workspace);
  // The sizes of what steps hand to each other; after bind(). Throws INVALID_ARGUMENT.
  void solve_values(const ValuesPlan& values) { sizes_.solve_values(values); }
  // After bind(): copies what is still in the caller's memory, but for inputs that the model writes to. Throws
  // OUT_OF_MEMORY.
  void own(const Workspace& workspace);
  // After a call that succeeded: what the model wrote into copies goes to the caller's buffers.
  void write_back(const Workspace& workspace);
  // Gives the copies back. After every bind().
  void release() noexcept;

  const aotpack_module_tensor* tensors() const noexcept { return tensors_.data(); }
  // All sizes of the call, by slot of the plan.
  const int64_t* sizes() const noexcept { return sizes_.data(); }

 private:
  struct Copy {
    void* block = nullptr;   // NULL: the caller's memory is used in place
    void* staged = nullptr;  // on the host, on its way to another device
    void* given = nullptr;
    int64_t given_strides[AOTPACK_MAX_RANK];
  };

  void check_kinds(const DLTensor* const* inputs, size_t count, DLDevice device) const;
  void check_sizes(const DLTensor* const* inputs);
  void place(size_t index, const DLTensor& given, const Workspace& workspace);
  void stage_bools(Copy& copy, const int64_t* strides, size_t bytes, aotpack_module_tensor& tensor,
                   const Workspace& workspace);
  void copy_in(size_t index, const DLTensor& given, const int64_t* strides, size_t bytes, const Workspace& workspace);
  void normalise_bools(const DLTensor* const* inputs, const Workspace& workspace);
  void find_leaders(const VariantRecord& variant);
  // Whether another input is the same tensor, in whose memory the module sees this one.
  bool follows(size_t index) const noexcept { return same_ != nullptr && leaders_[index] != index; }
  void join_followers() noexcept;
  [[noreturn]] void wrong_size(size_t index, const DLTensor& given) const;

  const EntryPlan* plan_;
  CallSizes sizes_;
  std::vector<aotpack_module_tensor> tensors_;
  std::vector<Copy> copies_;
  const std::vector<std::vector<uint32_t>>* same_ = nullptr;  // of the variant that runs; NULL: none are one tensor
  // By input, the one in whose memory the module sees it. Empty before the first call with inputs that are one tensor.
  std::vector<uint32_t> leaders_;
  bool any_copy_ = false;
};

}  // namespace aotpack::runtime
