// What the work of libraries has in common: where it is submitted, views of tensors, and memory for intermediate
// values.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "aotpack/module_abi.h"
#include "base/status.h"
#include "hal/cuda/stream.h"

namespace aotpack::runtime::cuda {

// Bytes of an element of the dtypes that libraries compute with; 0 for others.
inline size_t library_item(int32_t dtype) noexcept {
  switch (dtype) {
    case AOTPACK_DTYPE_FLOAT16:
    case AOTPACK_DTYPE_BFLOAT16:
      return 2;
    case AOTPACK_DTYPE_INT32:
    case AOTPACK_DTYPE_FLOAT32:
      return 4;
    case AOTPACK_DTYPE_FLOAT64:
    case AOTPACK_DTYPE_COMPLEX64:
      return 8;
    case AOTPACK_DTYPE_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

// Dtypes of transforms and linear algebra: those above but for half precision.
inline bool is_precise(int32_t dtype) noexcept { return library_item(dtype) >= 4; }

inline int64_t element_count(const aotpack_module_tensor& tensor) noexcept {
  return std::accumulate(tensor.sizes, tensor.sizes + tensor.rank, int64_t{1}, std::multiplies<>());
}

// One call of a library: the device, whose context is current, its stream, and memory that lives as long as this.
class LibraryWork {
 public:
  LibraryWork(CudaDevice& device, CudaStream& stream, WorkMemory& memory)
      : device_(device), stream_(stream), memory_(memory) {}
  ~LibraryWork() {
    for (void* block : blocks_) memory_.release(block);
  }
  LibraryWork(const LibraryWork&) = delete;
  LibraryWork& operator=(const LibraryWork&) = delete;

  CudaDevice& device() const noexcept { return device_; }
  CudaStream& stream() const noexcept { return stream_; }

  // Throws OUT_OF_MEMORY.
  void* take(size_t bytes) {
    blocks_.push_back(nullptr);
    blocks_.back() = memory_.allocate(bytes);
    if (blocks_.back() == nullptr) {
      blocks_.pop_back();
      fail(AOTPACK_OUT_OF_MEMORY, "no memory for %zu bytes of a library's work", bytes);
    }
    return blocks_.back();
  }

  // A tensor of these sizes in memory of its own, dense with its axes in `order`, from outermost to innermost.
  aotpack_module_tensor make(const aotpack_module_tensor& like, const std::vector<int32_t>& order) {
    aotpack_module_tensor made = like;
    int64_t step = 1;
    for (size_t i = order.size(); i-- > 0;) {
      made.strides[order[i]] = step;
      step *= like.sizes[order[i]];
    }
    made.data = take(static_cast<size_t>(step) * library_item(like.dtype));
    return made;
  }

  // Both have the same sizes and dtype.
  void copy(const aotpack_module_tensor& to, const aotpack_module_tensor& from) {
    stream_.copy_strided_on_device(to.data, to.strides, from.data, from.strides, to.sizes, to.rank,
                                   library_item(to.dtype));
  }

 private:
  CudaDevice& device_;
  CudaStream& stream_;
  WorkMemory& memory_;
  std::vector<void*> blocks_;
};

}  // namespace aotpack::runtime::cuda
