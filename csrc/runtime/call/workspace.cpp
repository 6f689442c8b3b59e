#include "call/workspace.h"

#include <utility>

#include "model/devices.h"

namespace aotpack::runtime {

Workspace::Workspace(Device& device, Allocator::Keep keep)
    : device_(device),
      device_id_(device.id()),
      input_alignment_(device.input_alignment()),
      stream_(device.make_stream()),
      stream_handle_(stream_->handle()),
      allocator_(Allocator::create(device, keep)) {
  host_allocator_ = allocator_;
  if (device.is_host()) return;
  try {
    host_allocator_ = Allocator::create(host_device(), keep);
  } catch (...) {
    allocator_->release();
    throw;
  }
}

void Workspace::set_stream(void* handle) {
  std::unique_ptr<Stream> next = handle != nullptr ? device_.borrow_stream(handle) : device_.make_stream();
  stream_->wait();
  next->take_over(*stream_);
  stream_ = std::move(next);
  stream_handle_ = stream_->handle();
}

Workspace::~Workspace() {
  if (host_allocator_ != allocator_) host_allocator_->release();
  allocator_->release();
}

}  // namespace aotpack::runtime
