// Result tensors: DLPack objects that own their memory.
#pragma once

#include "aotpack/dlpack.h"
#include "base/dtype.h"
#include "call/workspace.h"

namespace aotpack::runtime {

// A new tensor over `block`, one reference of which it takes over. The block comes from the allocator of the workspace,
// or from that of the host (`on_host`), the object itself from that of the host; both go back there when the tensor is
// released, on any thread, also after the workspace is gone. NULL when there is no memory; then the block still belongs
// to the caller.
DLManagedTensorVersioned* make_tensor(const Workspace& workspace, bool on_host, void* block, void* data,
                                      const DType& dtype, int32_t rank, const int64_t* sizes,
                                      const int64_t* strides) noexcept;

}  // namespace aotpack::runtime
