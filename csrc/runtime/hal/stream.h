// Ordered work on a device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aotpack/module_abi.h"

namespace aotpack::runtime {

// Memory of the device while a call goes on; given back, it may serve later work of the same stream.
class WorkMemory {
 public:
  // NULL when there is none.
  virtual void* allocate(size_t bytes) noexcept = 0;
  virtual void release(void* memory) noexcept = 0;

 protected:
  ~WorkMemory() = default;
};

// Belongs to one thread at a time. Work runs in the order in which it was submitted, and may end after the submitting
// function has returned: the memory that it uses must stay valid and unchanged until wait(). Where nothing else is
// said, functions throw DEVICE_FAILED or OUT_OF_MEMORY.
class Stream {
 public:
  virtual ~Stream() = default;

  // The handle for modules and drivers; NULL if all work ends before the submitting function returns.
  virtual void* handle() noexcept = 0;

  // Copies bytes. Each side may be memory of the host or of the stream's device.
  virtual void copy(void* to, const void* from, size_t bytes) = 0;
  // Copies the elements of a view to another one of the same sizes, like strided_copy (base/strided.h). Sizes and
  // strides are read before it returns.
  virtual void copy_strided(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                            const int64_t* sizes, int32_t rank, size_t item) = 0;
  // The same where both sides are memory of the device, which need not be found out.
  virtual void copy_on_device(void* to, const void* from, size_t bytes) { copy(to, from, bytes); }
  virtual void copy_strided_on_device(void* to, const int64_t* to_strides, const void* from,
                                      const int64_t* from_strides, const int64_t* sizes, int32_t rank, size_t item) {
    copy_strided(to, to_strides, from, from_strides, sizes, rank, item);
  }

  // Before and after the functions of a call, on its thread: what they have in common is done once.
  virtual void begin() {}
  virtual void end() noexcept {}

  // Waits for all work. Throws if any of it has failed.
  virtual void wait() = 0;
  // The end of a call. Waits, but for a stream of the caller's whose work uses memory of the device alone.
  virtual void finish() { wait(); }

  // Whether the caller records the stream's work instead of running it.
  virtual bool is_captured() { return false; }

  // The imports of modules (module_abi.h).
  virtual void launch(const aotpack_module_launch& launch);
  virtual void fill(void* to, uint64_t value, size_t item, size_t count);
  // `from` is read before it returns.
  virtual void upload(void* to, const void* from, size_t bytes);
  virtual void download(void* to, const void* from, size_t bytes);
  virtual void tensor_map(const aotpack_module_tensor_map& map);
  // Whether a library has got the work; what it writes is undefined otherwise.
  virtual bool provide(const aotpack_module_library_call&, WorkMemory&) { return false; }
  // This stream serves from now on what another one of its device has served, whose work has ended.
  virtual void take_over(Stream&) {}
};

// A call between Stream::begin and Stream::end.
class StreamScope {
 public:
  explicit StreamScope(Stream& stream) : stream_(stream) { stream_.begin(); }
  ~StreamScope() { stream_.end(); }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Stream& stream_;
};

}  // namespace aotpack::runtime
