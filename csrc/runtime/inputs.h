// Checks the inputs of a call and brings them into the layout that modules expect.
#ifndef AOTPACK_RUNTIME_INPUTS_H_
#define AOTPACK_RUNTIME_INPUTS_H_

#include <cstddef>
#include <vector>

#include "aotpack/dlpack.h"
#include "plan.h"
#include "pool.h"

namespace aotpack::runtime {

// The inputs of one entry in one context; reused from call to call. Belongs to one thread at a time.
class BoundInputs {
 public:
  explicit BoundInputs(const EntryPlan& plan);

  // Checks everything, then fills tensors() and dims(). Tensors that are not dense in the model's order, or misaligned,
  // are copied into memory of `pool`. Throws INVALID_ARGUMENT in the user's names, or OUT_OF_MEMORY; nothing stays held
  // then.
  void bind(const DLTensor* const* inputs, size_t count, Pool* pool);
  // After a call that succeeded: what the model wrote into copies goes to the caller's buffers.
  void write_back() noexcept;
  // Gives the copies back. After every bind().
  void release() noexcept;

  const aotpack_module_tensor* tensors() const noexcept { return tensors_.data(); }
  const std::vector<int64_t>& dims() const noexcept { return dims_; }
  // "'batch' = 4 by input 'ids'": for messages. Valid after the dims of a call are solved.
  std::string dim_origin(uint32_t dim) const;

 private:
  void check_kind(const DLTensor* const* inputs, size_t count) const;
  void solve_dims(const DLTensor* const* inputs);
  void check_sizes(size_t index, const DLTensor& given);
  void place(size_t index, const DLTensor& given, Pool* pool);
  [[noreturn]] void wrong_size(size_t index, uint32_t axis, int64_t got) const;

  const EntryPlan* plan_;
  std::vector<int64_t> dims_;
  std::vector<aotpack_module_tensor> tensors_;
  struct Copy {
    void* block = nullptr;  // NULL: the caller's memory is used in place
    void* given = nullptr;
    int64_t given_strides[AOTPACK_MAX_RANK];
  };
  std::vector<Copy> copies_;
  bool any_copy_ = false;
};

// Checks that a tensor is of this dtype and rank, on the CPU, and well-formed; `role` and `name` start the message.
// Throws INVALID_ARGUMENT.
void check_tensor_kind(const char* role, const ValueRecord& value, const DLTensor* given);

// "cuda:0"
std::string device_name(DLDevice device);
// "[batch, 3, 2*length + 1]"
std::string describe_shape(const EntryRecord& entry, const ValueRecord& value);
// "2*batch + 1"
std::string describe_size(const EntryRecord& entry, const SizeRecord& size);

// The strides of a DLTensor, computed into `buffer` where it has none. False when they overflow.
bool strides_of(const DLTensor& tensor, int64_t* buffer, const int64_t** out) noexcept;

inline char* data_of(const DLTensor& tensor) noexcept {
  return tensor.data != nullptr ? static_cast<char*>(tensor.data) + tensor.byte_offset : nullptr;
}

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_INPUTS_H_
