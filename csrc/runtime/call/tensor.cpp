#include "call/tensor.h"

#include <algorithm>
#include <new>

#include "aotpack/module_abi.h"

namespace aotpack::runtime {
namespace {

struct OwnedTensor {
  DLManagedTensorVersioned managed;
  Allocator* allocator;       // of the block
  Allocator* host_allocator;  // of this
  void* block;
  int64_t sizes_and_strides[2 * AOTPACK_MAX_RANK];  // only 2 * rank of them are there
};

void release_tensor(DLManagedTensorVersioned* self) noexcept {
  auto* tensor = static_cast<OwnedTensor*>(self->manager_ctx);
  Allocator* allocator = tensor->allocator;
  Allocator* host_allocator = tensor->host_allocator;
  Allocator::release_block(tensor->block);
  Allocator::release_block(tensor);
  if (host_allocator != allocator) host_allocator->release();
  allocator->release();
}

}  // namespace

DLManagedTensorVersioned* make_tensor(const Workspace& workspace, bool on_host, void* block, void* data,
                                      const DType& dtype, int32_t rank, const int64_t* sizes,
                                      const int64_t* strides) noexcept {
  const size_t count = static_cast<size_t>(rank);
  Allocator* allocator = workspace.allocator_of(on_host);
  Allocator* host_allocator = workspace.host_allocator();
  auto* tensor = static_cast<OwnedTensor*>(
      host_allocator->allocate(offsetof(OwnedTensor, sizes_and_strides) + 2 * count * sizeof(int64_t)));
  if (tensor == nullptr) return nullptr;
  allocator->retain();
  if (host_allocator != allocator) host_allocator->retain();
  tensor->allocator = allocator;
  tensor->host_allocator = host_allocator;
  tensor->block = block;
  int64_t* own_sizes = tensor->sizes_and_strides;
  int64_t* own_strides = own_sizes + count;
  std::copy(sizes, sizes + count, own_sizes);
  std::copy(strides, strides + count, own_strides);

  DLManagedTensorVersioned& managed = tensor->managed;
  managed.version = {AOTPACK_DLPACK_MAJOR, AOTPACK_DLPACK_MINOR};
  managed.manager_ctx = tensor;
  managed.deleter = release_tensor;
  managed.flags = 0;
  managed.dl_tensor.data = data;
  managed.dl_tensor.device = on_host ? DLDevice{kDLCPU, 0} : workspace.device_id();
  managed.dl_tensor.ndim = rank;
  managed.dl_tensor.dtype = dtype.dlpack;
  managed.dl_tensor.shape = own_sizes;
  managed.dl_tensor.strides = own_strides;
  managed.dl_tensor.byte_offset = 0;
  return &managed;
}

}  // namespace aotpack::runtime
