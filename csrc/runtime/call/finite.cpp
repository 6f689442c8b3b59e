#include "call/finite.h"

#include <cstdint>
#include <memory>

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

bool is_finite(const ValueRecord& value, const aotpack_module_tensor& output, const Workspace& workspace) {
  int64_t strides[AOTPACK_MAX_RANK];
  size_t bytes = 0;
  if (!dense_strides(output.sizes, value.order.data(), output.rank, value.dtype->size, strides, &bytes)) {
    fail(AOTPACK_INTERNAL, "output '%s' is larger than the address space", value.name.c_str());
  }
  const size_t count = bytes / value.dtype->size;
  if (count == 0) return true;
  if (workspace.is_host() && same_layout(output.sizes, output.strides, strides, output.rank)) {
    return all_finite(*value.dtype, output.data, count);
  }
  // On a device, or a view of something bigger, or one that repeats elements: what lies between does not count.
  const Block block = allocate(bytes, value, workspace);
  void* copy = Allocator::data(block.get());
  try {
    workspace.stream().copy_strided(copy, strides, output.data, output.strides, output.sizes, output.rank,
                                    value.dtype->size);
    workspace.stream().wait();
  } catch (...) {
    try {
      workspace.stream().wait();  // before the memory of the copy goes
    } catch (...) {               // the call fails for another reason already
    }
    throw;
  }
  return all_finite(*value.dtype, copy, count);
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
