// What makes and holds the small tensors that generated code works with inside a compiled module.
//
// A Call lives for one `run`; tensors and storages come from its slabs, data from the runtime's `alloc`. Generated code
// and operators reach the current call through Call::current(), set for the thread that runs; nothing here is called
// from inside a parallel region.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "aotpack/module_abi.h"
#include "tensor_data.h"

namespace aotpack::module {

// An operator could not compute; becomes the error of the call. `code` is one of AOTPACK_MODULE_*.
class Error {
 public:
  Error(int32_t code, std::string message) : code_(code), message_(std::move(message)) {}
  int32_t code() const { return code_; }
  const std::string& message() const { return message_; }

 private:
  int32_t code_;
  std::string message_;
};

// The type of devices that are the host, as DLPack numbers them.
inline constexpr int32_t kHostDevice = 1;

[[noreturn]] void throw_invalid(const std::string& message);

// A function of the runtime failed, and has recorded the error of the call; `code` is what it returned.
struct ImportFailure {
  int32_t code;
};

// Bytes of one element; throws Error for a dtype that the ABI does not know.
int64_t element_size(int32_t dtype);
// "float32", ...
const char* dtype_name(int32_t dtype);

class Call {
 public:
  explicit Call(const aotpack_module_call* call);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  static Call& current();

  const aotpack_module_call& arguments() const { return *call_; }
  int num_threads() const { return call_->num_threads; }
  uint64_t seed();

  // Uninitialised, 64-byte aligned; throws Error(AOTPACK_MODULE_OUT_OF_MEMORY).
  void* allocate(int64_t bytes);
  void release(void* block);

  // The next tensor that `empty` makes of so many bytes may lie at an offset of the arena, which has `arena_bytes`.
  // Does so unless another one is there.
  void place(int64_t offset, int64_t bytes, int64_t arena_bytes);

  // A tensor with memory of its own. Sizes and strides are copied. `place` may have given it the memory of `last`,
  // which the operator reads element by element before it writes the result there.
  Tensor* empty(int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                const Tensor* last = nullptr);
  // The same in memory of the host, in modules for devices; not for results.
  Tensor* empty_on_host(int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype);
  Tensor* empty_contiguous(int32_t rank, const int64_t* sizes, int32_t dtype, const Tensor* last = nullptr);
  // A tensor over memory that it does not own.
  Tensor* borrow(const aotpack_module_tensor& source);
  Tensor* borrow(void* data, int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype);
  // Another view of the same storage; `offset` counts elements from the storage's start.
  Tensor* view(const Tensor* source, int32_t rank, const int64_t* sizes, const int64_t* strides, int64_t offset);
  // The same view again.
  Tensor* retain(const Tensor* source);
  void drop(Tensor* tensor);
  // Moves the results out: fills `out` and leaves the tensors' blocks to the runtime.
  void give(Tensor* const* tensors, uint32_t count, aotpack_module_tensor* out);

  void fail(const Error& error);

 private:
  Tensor* new_tensor();
  Storage* new_storage();
  Tensor* empty_in_arena(int64_t bytes, int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                         const Tensor* last);
  void forget_place(Storage* storage);
  void leave_arena(Tensor* const* results, uint32_t count);
  Tensor* over(void* block, int64_t bytes, int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype);
  void release(const Storage& storage);

  // Enough for small models without touching the heap; larger ones chain slabs from it.
  static constexpr int kInline = 48;
  struct Slab;
  const aotpack_module_call* call_;
  Call* outer_;
  Tensor* free_tensors_ = nullptr;
  Storage* free_storages_ = nullptr;
  Slab* slabs_ = nullptr;
  int used_ = 0;
  // The last calls of `place`: operators may make several results.
  struct Place {
    int64_t offset;
    int64_t bytes = -1;  // no place
  };
  static constexpr unsigned kPlaces = 4;
  Place places_[kPlaces];
  unsigned next_place_ = 0;
  int64_t arena_bytes_ = 0;
  char* arena_ = nullptr;  // once a tensor is in it
  Storage* placed_ = nullptr;
  Tensor tensors_[kInline];
  Storage storages_[kInline];
};

// Scratch memory for the length of a scope.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : block_(bytes > 0 ? Call::current().allocate(bytes) : nullptr) {}
  ~Scratch() {
    if (block_ != nullptr) Call::current().release(block_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  void* get() const { return block_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(block_);
  }

 private:
  void* block_;
};

// Owns a Tensor for the length of a scope.
class Owned {
 public:
  explicit Owned(Tensor* tensor) : tensor_(tensor) {}
  ~Owned() {
    if (tensor_ != nullptr) Call::current().drop(tensor_);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  Tensor* get() const { return tensor_; }
  Tensor* operator->() const { return tensor_; }
  // In place of none.
  void reset(Tensor* tensor) { tensor_ = tensor; }
  Tensor* release() {
    Tensor* tensor = tensor_;
    tensor_ = nullptr;
    return tensor;
  }

 private:
  Tensor* tensor_;
};

// `source` itself (retained) when it is contiguous, else a contiguous copy.
Tensor* contiguous(const Tensor* source);
// Copies elements between views of equal sizes and dtype; strides are free.
void copy_strided(const Tensor* destination, const Tensor* source);
// Row-major strides of `sizes`.
void contiguous_strides(int32_t rank, const int64_t* sizes, int64_t* strides);

}  // namespace aotpack::module
