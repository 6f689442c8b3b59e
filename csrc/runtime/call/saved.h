// A forward that keeps tensors for its backward, and that backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "aotpack/dlpack.h"
#include "call/context.h"

namespace aotpack::runtime {

// What one forward has kept. Owns the outputs that it keeps, together with the caller; refers to memory of inputs.
// Belongs to the context that made it, and to one thread at a time, but may be destroyed on any and after its context.
class Saved {
 public:
  size_t nbytes() const noexcept { return nbytes_; }

 private:
  friend std::unique_ptr<Saved> run_forward(Context* context, size_t entry, const DLTensor* const* inputs,
                                            size_t num_inputs, DLManagedTensorVersioned** outputs, size_t num_outputs);
  friend void run_backward(Context* context, const Saved& saved, const DLTensor* const* gradients, size_t num_gradients,
                           DLManagedTensorVersioned** outputs, size_t num_outputs);

  // An output that the forward has made, if it has.
  struct Output {
    Output() = default;
    ~Output() {
      if (tensor != nullptr) tensor->deleter(tensor);
    }
    Output(const Output&) = delete;
    Output& operator=(const Output&) = delete;
    DLManagedTensorVersioned* tensor = nullptr;
  };
  // A tensor of the caller's over an output.
  struct SharedOutput;
  // An input that the backward reads: a description of the caller's tensor, or a number.
  struct Input {
    std::vector<int64_t> sizes_and_strides;
    alignas(16) uint8_t number[16] = {};
    DLTensor tensor{};
  };

  uint64_t context_ = 0;
  uint64_t state_generation_ = 0;
  uint64_t weight_generation_ = 0;
  size_t entry_ = 0;
  size_t nbytes_ = 0;
  std::vector<std::shared_ptr<Output>> outputs_;
  std::vector<std::unique_ptr<Input>> inputs_;
  std::vector<std::vector<int64_t>> gradient_sizes_;  // of the outputs that have gradients
};

// See aotpack_context_forward and aotpack_context_backward. Elements of `outputs` are NULL when these throw.
std::unique_ptr<Saved> run_forward(Context* context, size_t entry, const DLTensor* const* inputs, size_t num_inputs,
                                   DLManagedTensorVersioned** outputs, size_t num_outputs);
void run_backward(Context* context, const Saved& saved, const DLTensor* const* gradients, size_t num_gradients,
                  DLManagedTensorVersioned** outputs, size_t num_outputs);

}  // namespace aotpack::runtime
