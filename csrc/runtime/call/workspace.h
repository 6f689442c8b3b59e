// What the calls of a context work with on a device: memory and a stream.
#pragma once

#include <memory>

#include "hal/allocator.h"
#include "hal/device.h"

namespace aotpack::runtime {

// Belongs to one thread at a time, as the context does; what was allocated may outlive it.
class Workspace {
 public:
  // Throws OUT_OF_MEMORY or INTERNAL.
  Workspace(Device& device, Allocator::Keep keep);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  Device& device() const noexcept { return device_; }
  DLDevice device_id() const noexcept { return device_id_; }
  // See Device::input_alignment.
  size_t input_alignment() const noexcept { return input_alignment_; }
  bool is_host() const noexcept { return host_allocator_ == allocator_; }
  // Of memory on the device.
  Allocator* allocator() const noexcept { return allocator_; }
  // Of memory that the host reads and writes: the same one where that is the device's.
  Allocator* host_allocator() const noexcept { return host_allocator_; }
  // Of memory on the device, or on the host where that is asked for.
  Allocator* allocator_of(bool on_host) const noexcept { return on_host ? host_allocator_ : allocator_; }
  Stream& stream() const noexcept { return *stream_; }
  // Replaces the stream by one of the caller's, or by a new one for NULL, when the work of the old one has ended.
  // Throws what Device::make_stream and borrow_stream throw, and INTERNAL; then nothing has changed.
  void set_stream(void* handle);
  // What modules know it by.
  void* stream_handle() const noexcept { return stream_handle_; }

 private:
  Device& device_;
  DLDevice device_id_;
  size_t input_alignment_;
  std::unique_ptr<Stream> stream_;
  void* stream_handle_;
  Allocator* allocator_;
  Allocator* host_allocator_;
};

}  // namespace aotpack::runtime
