// The format https://github.com/huggingface/safetensors#format: the length of a header in 8 little-endian bytes, the
// header (JSON: name -> dtype, shape, data_offsets; `__metadata__`), the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/dtype.h"

namespace aotpack::runtime {

inline constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr std::string_view kSafetensorsMetadata = "__metadata__";

// Strings by name, of `__metadata__`.
using Metadata = std::map<std::string, std::string, std::less<>>;

// NULL for a dtype that the format has no name for: complex128.
const char* safetensors_name(const DType& dtype) noexcept;
// NULL for a name that is unknown, or of a dtype that no model has.
const DType* safetensors_dtype(std::string_view name) noexcept;

}  // namespace aotpack::runtime
