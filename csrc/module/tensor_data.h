// The tensor that generated code works with inside a compiled module, as data: without the standard library.
#pragma once

#include <stdint.h>

#include "aotpack/module_abi.h"

namespace aotpack::module {

// Memory that tensors view. `block` is what `alloc` returned, or null for memory of an input or constant.
struct Storage {
  char* base;
  void* block;
  int64_t nbytes;
  int32_t references;
  Storage* next_free;
  // In modules for devices: the memory is the host's. A block is from malloc then.
  bool on_host = false;
  // In the arena: where, and the next one there. `block` is null then.
  bool is_placed = false;
  Storage* next_placed = nullptr;
};

// A strided view of a storage; `data` points at element (0, ..., 0). Sizes and strides count elements.
struct Tensor {
  Storage* storage;
  char* data;
  int32_t dtype;
  int32_t rank;
  int64_t sizes[AOTPACK_MAX_RANK];
  int64_t strides[AOTPACK_MAX_RANK];
  Tensor* next_free;

  int64_t numel() const {
    int64_t n = 1;
    for (int32_t i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
  bool is_contiguous() const;
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

}  // namespace aotpack::module
