#include "call/tensor_copy.h"

#include <algorithm>
#include <string>

#include "aotpack/module_abi.h"
#include "base/dltensor.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/strided.h"
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
