#include "safetensors/format.h"

namespace aotpack::runtime {
namespace {

struct Name {
  const char* ours;
  const char* theirs;
};

constexpr Name kNames[] = {
    {"float64", "F64"},
    {"float32", "F32"},
    {"float16", "F16"},
    {"bfloat16", "BF16"},
    {"int64", "I64"},
    {"int32", "I32"},
    {"int16", "I16"},
    {"int8", "I8"},
    {"uint8", "U8"},
    {"uint16", "U16"},
    {"uint32", "U32"},
    {"uint64", "U64"},
    {"bool", "BOOL"},
    {"complex64", "C64"},
    {"float8_e4m3fn", "F8_E4M3"},
    {"float8_e4m3fnuz", "F8_E4M3FNUZ"},
    {"float8_e5m2", "F8_E5M2"},
    {"float8_e5m2fnuz", "F8_E5M2FNUZ"},
};

}  // namespace

const char* safetensors_name(const DType& dtype) noexcept {
  for (const Name& name : kNames) {
    if (std::string_view(name.ours) == dtype.name) return name.theirs;
  }
  return nullptr;
}

const DType* safetensors_dtype(std::string_view theirs) noexcept {
  for (const Name& name : kNames) {
    if (theirs == name.theirs) return find_dtype(name.ours);
  }
  return nullptr;
}

}  // namespace aotpack::runtime
