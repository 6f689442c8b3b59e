// What a module does on its device, through the imports of the runtime. Work is submitted to the stream of the call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor.h"

namespace aotpack::module {

// A kernel: the asset with its code, its name in there, and AOTPACK_LAUNCH_*.
struct Kernel {
  uint32_t asset;
  const char* name;
  uint32_t flags;
};

struct Grid {
  uint32_t x, y, z;
};

// All throw ImportFailure.
void launch(const Kernel& kernel, const Grid& grid, uint32_t threads, uint32_t shared_bytes, void* const* arguments,
            uint32_t num_arguments);
void copy_on_device(void* to, const void* from, int64_t bytes);
void upload(void* to, const void* from, int64_t bytes);
// Waits for all work before it.
void download(void* to, const void* from, int64_t bytes);
void fill(void* to, uint64_t value, int64_t item, int64_t count);

// A matrix of the device, for kernels that read blocks of it: what they take as an argument, and, as TorchInductor
// passes them, what Triton's kernels are given beside it and do not read.
struct alignas(64) MatrixDescriptor {
  unsigned char m[128];
  uint32_t block_shape[2];
  uint64_t strides[2];
  // What is described, for libraries that compute in place of the kernel.
  void* data;
  int64_t sizes[2];
  int32_t dtype;
};
// `rows` and `columns`: of a block. The elements of a row of `matrix` lie side by side. Returns an aligned copy of the
// matrix if that is what is described, else NULL; the caller keeps it as long as the descriptor is used.
Tensor* describe(MatrixDescriptor* out, const Tensor* matrix, uint32_t rows, uint32_t columns);

// Bytes from the first element to the end of the last; strides are not negative.
int64_t extent(const Tensor* tensor);
// The first `bytes` of a tensor in memory of the host, wherever they are.
void read(const Tensor* tensor, void* to, int64_t bytes);

}  // namespace aotpack::module
