#include "call/tensor_copy.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "aotpack/module_abi.h"
#include "base/dltensor.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/strided.h"
#include "call/tensor.h"
#include "model/devices.h"

namespace aotpack::runtime {
namespace {

const DType& require_valid(const char* role, const DLTensor& tensor) {
  const DType* dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) {
    fail(AOTPACK_INVALID_ARGUMENT, "'%s' has the dtype %s, which is not supported", role,
         dtype_name(tensor.dtype).c_str());
  }
  const int32_t rank = tensor.ndim;
  if (rank < 0 || rank > AOTPACK_MAX_RANK || (rank > 0 && tensor.shape == nullptr) ||
      std::any_of(tensor.shape, tensor.shape + rank, [](int64_t size) { return size < 0; })) {
    fail(AOTPACK_INVALID_ARGUMENT, "'%s' has no valid shape", role);
  }
  return *dtype;
}

}  // namespace

DLManagedTensorVersioned* copy_to_device(const DLTensor& from, const Workspace& workspace) {
  const DType& dtype = require_valid("from", from);
  if (!is_on_host(from.device) && !same_device(from.device, workspace.device_id())) {
    fail(AOTPACK_INVALID_ARGUMENT, "'from' must be on the CPU or %s, got %s",
         device_name(workspace.device_id()).c_str(), device_name(from.device).c_str());
  }
  int64_t compact[AOTPACK_MAX_RANK], strides[AOTPACK_MAX_RANK];
  const int64_t* from_strides = nullptr;
  uint32_t order[AOTPACK_MAX_RANK];
  std::iota(order, order + AOTPACK_MAX_RANK, 0);
  size_t bytes = 0;
  if (!strides_of(from, compact, &from_strides) ||
      !dense_strides(from.shape, order, from.ndim, dtype.size, strides, &bytes)) {
    fail(AOTPACK_INVALID_ARGUMENT, "'from' is larger than the address space");
  }
  if (bytes != 0 && data_of(from) == nullptr) fail(AOTPACK_INVALID_ARGUMENT, "'from' has no data");
  void* block = workspace.allocator()->allocate(bytes);
  DLManagedTensorVersioned* made = block != nullptr
                                       ? make_tensor(workspace, workspace.is_host(), block, Allocator::data(block),
                                                     dtype, from.ndim, from.shape, strides)
                                       : nullptr;
  if (made == nullptr) {
    if (block != nullptr) Allocator::release_block(block);
    fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes for a copy", bytes);
  }
  try {
    if (bytes != 0) {
      workspace.stream().copy_strided(Allocator::data(block), strides, data_of(from), from_strides, from.shape,
                                      from.ndim, dtype.size);
    }
    workspace.stream().wait();
  } catch (...) {
    made->deleter(made);
    throw;
  }
  return made;
}

void copy_tensor(const DLTensor& from, const DLTensor& to) {
  const DType& dtype = require_valid("from", from);
  require_valid("to", to);
  const int32_t rank = from.ndim;
  if (!same_dtype(from.dtype, to.dtype) || rank != to.ndim || !std::equal(from.shape, from.shape + rank, to.shape)) {
    fail(AOTPACK_INVALID_ARGUMENT, "'from' and 'to' must have the same dtype and sizes");
  }
  int64_t compact[2][AOTPACK_MAX_RANK];
  const int64_t* from_strides = nullptr;
  const int64_t* to_strides = nullptr;
  if (!strides_of(from, compact[0], &from_strides) || !strides_of(to, compact[1], &to_strides) ||
      !is_non_overlapping(to.shape, to_strides, rank)) {
    fail(AOTPACK_INVALID_ARGUMENT, "the strides of 'to' overlap, or a tensor is larger than the address space");
  }
  if (std::find(from.shape, from.shape + rank, 0) != from.shape + rank) return;
  if (data_of(from) == nullptr || data_of(to) == nullptr) fail(AOTPACK_INVALID_ARGUMENT, "a tensor has no data");
  const DLDevice device = is_on_host(to.device) ? from.device : to.device;
  const std::unique_ptr<Stream> stream = (is_on_host(device) ? host_device() : find_device(device)).make_stream();
  stream->copy_strided(data_of(to), to_strides, data_of(from), from_strides, from.shape, rank, dtype.size);
  stream->wait();
}

}  // namespace aotpack::runtime
