#include "device/device.h"

#include <algorithm>

#include "device/shim.h"
#include "imports.h"
#include "split_mix.h"

namespace aotpack::module {

namespace {

template <typename Function, typename... Arguments>
void call_runtime(Import import, Arguments... arguments) {
  const aotpack_module_call& call = Call::current().arguments();
  const int32_t code = reinterpret_cast<Function>(call.imports[import])(call.runtime, arguments...);
  if (code != AOTPACK_MODULE_OK) throw ImportFailure{code};
}

}  // namespace

int64_t extent(const Tensor* tensor) {
  int64_t last = 0;
  for (int32_t i = 0; i < tensor->rank; ++i) {
    if (tensor->sizes[i] == 0) return 0;
    last += (tensor->sizes[i] - 1) * tensor->strides[i];
  }
  return (last + 1) * element_size(tensor->dtype);
}

void launch(const Kernel& kernel, const Grid& grid, uint32_t threads, uint32_t shared_bytes, void* const* arguments,
            uint32_t num_arguments) {
  aotpack_module_launch call = {};
  call.struct_size = sizeof(call);
  call.code = &Call::current().arguments().assets[kernel.asset];
  call.kernel = kernel.name;
  call.grid[0] = grid.x;
  call.grid[1] = grid.y;
  call.grid[2] = grid.z;
  call.block[0] = threads;
  call.block[1] = call.block[2] = 1;
  call.shared_bytes = shared_bytes;
  call.flags = kernel.flags;
  call.arguments = arguments;
  call.num_arguments = num_arguments;
  call_runtime<aotpack_import_launch_fn>(import_launch, &call);
}

Tensor* describe(MatrixDescriptor* out, const Tensor* matrix, uint32_t rows, uint32_t columns) {
  const auto item = static_cast<uint32_t>(element_size(matrix->dtype));
  if (matrix->rank != 2 || (matrix->sizes[1] > 1 && matrix->strides[1] != 1)) {
    throw_invalid("a matrix whose rows are not contiguous cannot be described");
  }
  out->block_shape[0] = rows;
  out->block_shape[1] = columns;
  out->strides[0] = static_cast<uint64_t>(matrix->strides[0]);
  out->strides[1] = 1;
  out->data = matrix->data;
  std::copy_n(matrix->sizes, 2, out->sizes);
  out->dtype = matrix->dtype;
  // No kernel is launched for it.
  if (matrix->sizes[0] == 0 || matrix->sizes[1] == 0) return nullptr;
  const bool is_aligned = reinterpret_cast<uintptr_t>(matrix->data) % 16 == 0;
  Owned copy(is_aligned ? nullptr : Call::current().empty(2, matrix->sizes, matrix->strides, matrix->dtype));
  if (!is_aligned) copy_on_device(copy->data, matrix->data, extent(matrix));
  // Kernels read rows of at most 128 bytes at once, one after the other if a block has longer ones.
  const uint32_t row_bytes = std::min<uint32_t>(columns * item, 128);
  aotpack_module_tensor_map map = {};
  map.struct_size = sizeof(map);
  map.out = out->m;
  if (!is_aligned) out->data = copy->data;
  map.address = out->data;
  std::copy_n(matrix->sizes, 2, map.sizes);
  map.stride = matrix->strides[0];
  map.box[0] = rows;
  map.box[1] = row_bytes / item;
  map.item = item;
  map.swizzle = row_bytes >= 32 ? row_bytes : 0;
  call_runtime<aotpack_import_tensor_map_fn>(import_tensor_map, &map);
  return copy.release();
}

void copy_on_device(void* to, const void* from, int64_t bytes) {
  call_runtime<aotpack_import_copy_fn>(import_copy, to, from, static_cast<size_t>(bytes));
}

void upload(void* to, const void* from, int64_t bytes) {
  call_runtime<aotpack_import_upload_fn>(import_upload, to, from, static_cast<size_t>(bytes));
}

void download(void* to, const void* from, int64_t bytes) {
  call_runtime<aotpack_import_download_fn>(import_download, to, from, static_cast<size_t>(bytes));
}

void fill(void* to, uint64_t value, int64_t item, int64_t count) {
  call_runtime<aotpack_import_fill_fn>(import_fill, to, value, static_cast<size_t>(item), static_cast<size_t>(count));
}

void read(const Tensor* tensor, void* to, int64_t bytes) {
  if (tensor->storage->on_host) {
    std::memcpy(to, tensor->data, static_cast<size_t>(bytes));
  } else {
    download(to, tensor->data, bytes);
  }
}

}  // namespace aotpack::module

namespace torch::aot_inductor {

using namespace aotpack::module;

void aoti_torch_zero_(AtenTensorHandle tensor) {
  if (!tensor->is_contiguous()) throw_invalid("zero_ of a non-contiguous tensor");
  fill(tensor->data, 0, 1, tensor->numel() * element_size(tensor->dtype));
}

void aoti_torch_copy_(AtenTensorHandle to, AtenTensorHandle from, int32_t) {
  const bool is_alike = to->dtype == from->dtype && to->rank == from->rank &&
                        std::equal(to->sizes, to->sizes + to->rank, from->sizes) &&
                        std::equal(to->strides, to->strides + to->rank, from->strides);
  if (!is_alike || extent(from) != from->numel() * element_size(from->dtype)) {
    throw_invalid("a copy between the host and the device changes the layout");
  }
  const int64_t bytes = extent(from);
  if (bytes == 0) return;
  if (to->storage->on_host) {
    read(from, to->data, bytes);
  } else if (!from->storage->on_host) {
    copy_on_device(to->data, from->data, bytes);
  } else if (from->numel() == 1) {
    // A number of the host is part of the work, which graphs record: they have runs of at most 4 bytes.
    for (int64_t at = 0; at < bytes; at += 4) {
      uint32_t value = 0;
      const int64_t size = std::min<int64_t>(bytes - at, sizeof(value));
      std::memcpy(&value, from->data + at, static_cast<size_t>(size));
      fill(to->data + at, value, size, 1);
    }
  } else {
    upload(to->data, from->data, bytes);
  }
}

void aoti_torch_clone_preserve_strides(AtenTensorHandle tensor, AtenTensorHandle* out) {
  Owned copy(Call::current().empty(tensor->rank, tensor->sizes, tensor->strides, tensor->dtype));
  copy_on_device(copy->data, tensor->data, extent(tensor));
  *out = copy.release();
}

void aoti_torch_cuda_randint_low_out(AtenTensorHandle out, int64_t low, int64_t high, const int64_t*, int64_t) {
  if (low >= high) throw_invalid("randint: low must be below high");
  if (out->dtype != AOTPACK_DTYPE_INT64 || !out->is_contiguous()) {
    throw_invalid(std::string("randint into ") + dtype_name(out->dtype));
  }
  // A few seeds for kernels, which draw the numbers themselves.
  SplitMix64 generator(Call::current().seed());
  std::vector<int64_t> values(static_cast<size_t>(out->numel()));
  for (int64_t& value : values) value = generator.between(low, high);
  upload(out->data, values.data(), static_cast<int64_t>(values.size() * sizeof(int64_t)));
}

}  // namespace torch::aot_inductor
