#include "call/finite.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>

#include "base/dtype.h"
#include "base/floats.h"
#include "base/status.h"
#include "base/strided.h"

namespace aotpack::runtime {
namespace {

struct Release {
  void operator()(void* block) const noexcept { Allocator::release_block(block); }
};
using Block = std::unique_ptr<void, Release>;

Block allocate(size_t bytes, const ValueRecord& value, const Workspace& workspace) {
  Block block(workspace.host_allocator()->allocate(bytes));
  if (block == nullptr) fail(AOTPACK_OUT_OF_MEMORY, "out of memory to check output '%s'", value.name.c_str());
  return block;
}

// The real dtype that the numbers of a dtype consist of; NULL where they are not checked.
const DType* part_of(const DType& dtype) noexcept {
  if (dtype.dlpack.code == kDLComplex) return find_dtype(dtype.size == 8 ? "float32" : "float64");
  return is_floating(dtype) ? &dtype : nullptr;
}

bool all_finite(const DType& dtype, const void* data, size_t count) noexcept {
  constexpr size_t kChunk = 256;
  double numbers[kChunk];
  auto at = static_cast<const char*>(data);
  while (count > 0) {
    const size_t some = std::min(count, kChunk);
    to_doubles(dtype, at, some, numbers);
    // A sum of products with 0 is 0 unless one of the numbers is not finite; it needs no branch per element.
    double sum = 0;
    for (size_t i = 0; i < some; ++i) sum += numbers[i] * 0.0;
    if (!(sum == 0)) return false;
    at += some * dtype.size;
    count -= some;
  }
  return true;
}

bool is_finite(const ValueRecord& value, const aotpack_module_tensor& output, const Workspace& workspace) {
  const DType* part = part_of(*value.dtype);
  if (part == nullptr) return true;
  size_t count = 1;
  size_t extent = 1;
  for (int32_t i = 0; i < output.rank; ++i) {
    if (output.sizes[i] == 0) return true;
    count *= static_cast<size_t>(output.sizes[i]);
    extent += static_cast<size_t>((output.sizes[i] - 1) * output.strides[i]);
  }
  const size_t item = value.dtype->size;
  const void* data = output.data;
  Block copied;
  if (!workspace.is_host()) {
    copied = allocate(extent * item, value, workspace);
    workspace.stream().copy(copied.get(), data, extent * item);
    workspace.stream().wait();
    data = copied.get();
  }
  Block gathered;
  if (extent != count) {
    // A view of something bigger, or one that repeats elements: what lies between does not count.
    gathered = allocate(count * item, value, workspace);
    int64_t strides[AOTPACK_MAX_RANK];
    uint32_t order[AOTPACK_MAX_RANK];
    std::iota(order, order + output.rank, 0u);
    size_t bytes = 0;
    if (!dense_strides(output.sizes, order, output.rank, item, strides, &bytes))
      return true;  // check_outputs saw to it
    strided_copy(gathered.get(), strides, data, output.strides, output.sizes, output.rank, item);
    data = gathered.get();
  }
  return all_finite(*part, data, count * (item / part->size));
}

}  // namespace

void check_finite(const EntryRecord& entry, const std::vector<aotpack_module_tensor>& outputs,
                  const Workspace& workspace) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_finite(entry.outputs[i], outputs[i], workspace)) continue;
    fail(AOTPACK_EXECUTION_FAILED, "entry '%s': output '%s' is not finite: it has a NaN or an infinite element",
         entry.name.c_str(), entry.outputs[i].name.c_str());
  }
}

}  // namespace aotpack::runtime
