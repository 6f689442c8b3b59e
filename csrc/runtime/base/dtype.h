// Element types: the manifest's names, the module ABI's numbers and DLPack's triples.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "aotpack/dlpack.h"

namespace aotpack::runtime {

struct DType {
  const char* name;
  int32_t module_code;  // AOTPACK_DTYPE_*
  uint32_t size;        // bytes of one element
  uint32_t alignment;   // that a pointer to it must have
  DLDataType dlpack;

  bool is_bool() const noexcept { return dlpack.code == kDLBool; }
};

// NULL when there is no such type.
const DType* find_dtype(std::string_view name) noexcept;
const DType* find_dtype(DLDataType dlpack) noexcept;

inline bool same_dtype(DLDataType a, DLDataType b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// A name for any triple, also one that no model can have, e.g. "int128".
std::string dtype_name(DLDataType dlpack);

}  // namespace aotpack::runtime
