#include "base/dtype.h"

#include "aotpack/module_abi.h"
#include "base/status.h"

namespace aotpack::runtime {
namespace {

constexpr DType kTypes[] = {
    {"float16", AOTPACK_DTYPE_FLOAT16, 2, 2, {kDLFloat, 16, 1}},
    {"float32", AOTPACK_DTYPE_FLOAT32, 4, 4, {kDLFloat, 32, 1}},
    {"float64", AOTPACK_DTYPE_FLOAT64, 8, 8, {kDLFloat, 64, 1}},
    {"bfloat16", AOTPACK_DTYPE_BFLOAT16, 2, 2, {kDLBfloat, 16, 1}},
    {"int8", AOTPACK_DTYPE_INT8, 1, 1, {kDLInt, 8, 1}},
    {"int16", AOTPACK_DTYPE_INT16, 2, 2, {kDLInt, 16, 1}},
    {"int32", AOTPACK_DTYPE_INT32, 4, 4, {kDLInt, 32, 1}},
    {"int64", AOTPACK_DTYPE_INT64, 8, 8, {kDLInt, 64, 1}},
    {"uint8", AOTPACK_DTYPE_UINT8, 1, 1, {kDLUInt, 8, 1}},
    {"uint16", AOTPACK_DTYPE_UINT16, 2, 2, {kDLUInt, 16, 1}},
    {"uint32", AOTPACK_DTYPE_UINT32, 4, 4, {kDLUInt, 32, 1}},
    {"uint64", AOTPACK_DTYPE_UINT64, 8, 8, {kDLUInt, 64, 1}},
    {"bool", AOTPACK_DTYPE_BOOL, 1, 1, {kDLBool, 8, 1}},
    {"complex64", AOTPACK_DTYPE_COMPLEX64, 8, 4, {kDLComplex, 64, 1}},
    {"complex128", AOTPACK_DTYPE_COMPLEX128, 16, 8, {kDLComplex, 128, 1}},
    {"float8_e4m3fn", AOTPACK_DTYPE_FLOAT8_E4M3FN, 1, 1, {kDLFloat8_e4m3fn, 8, 1}},
    {"float8_e4m3fnuz", AOTPACK_DTYPE_FLOAT8_E4M3FNUZ, 1, 1, {kDLFloat8_e4m3fnuz, 8, 1}},
    {"float8_e5m2", AOTPACK_DTYPE_FLOAT8_E5M2, 1, 1, {kDLFloat8_e5m2, 8, 1}},
    {"float8_e5m2fnuz", AOTPACK_DTYPE_FLOAT8_E5M2FNUZ, 1, 1, {kDLFloat8_e5m2fnuz, 8, 1}},
};

}  // namespace

const DType* find_dtype(std::string_view name) noexcept {
  for (const DType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

const DType* find_dtype(DLDataType dlpack) noexcept {
  for (const DType& type : kTypes) {
    if (same_dtype(type.dlpack, dlpack)) return &type;
  }
  return nullptr;
}

std::string dtype_name(DLDataType dlpack) {
  if (const DType* type = find_dtype(dlpack)) return type->name;
  const char* family = dlpack.code == kDLInt       ? "int"
                       : dlpack.code == kDLUInt    ? "uint"
                       : dlpack.code == kDLFloat   ? "float"
                       : dlpack.code == kDLBfloat  ? "bfloat"
                       : dlpack.code == kDLComplex ? "complex"
                       : dlpack.code == kDLBool    ? "bool"
                                                   : nullptr;
  std::string name = family != nullptr ? format("%s%u", family, static_cast<unsigned>(dlpack.bits))
                                       : format("DLPack type %u of %u bits", static_cast<unsigned>(dlpack.code),
                                                static_cast<unsigned>(dlpack.bits));
  if (dlpack.lanes != 1) name += format("x%u", static_cast<unsigned>(dlpack.lanes));
  return name;
}

}  // namespace aotpack::runtime
