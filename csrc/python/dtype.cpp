#include "dtype.h"

#include <cstring>

namespace aotpack::python {
namespace {

struct Row {
  DLDataType dtype;
  const char* name;
  const char* format;
};

constexpr Row kRows[] = {
    {{kDLFloat, 32, 1}, "float32", "f"},
    {{kDLFloat, 64, 1}, "float64", "d"},
    {{kDLFloat, 16, 1}, "float16", "e"},
    {{kDLBfloat, 16, 1}, "bfloat16", nullptr},
    {{kDLInt, 64, 1}, "int64", "q"},
    {{kDLInt, 32, 1}, "int32", "i"},
    {{kDLInt, 16, 1}, "int16", "h"},
    {{kDLInt, 8, 1}, "int8", "b"},
    {{kDLUInt, 8, 1}, "uint8", "B"},
    {{kDLBool, 8, 1}, "bool", "?"},
    {{kDLComplex, 64, 1}, "complex64", "Zf"},
    {{kDLComplex, 128, 1}, "complex128", "Zd"},
    {{kDLUInt, 16, 1}, "uint16", "H"},
    {{kDLUInt, 32, 1}, "uint32", "I"},
    {{kDLUInt, 64, 1}, "uint64", "Q"},
    {{kDLFloat8_e4m3fn, 8, 1}, "float8_e4m3fn", nullptr},
    {{kDLFloat8_e4m3fnuz, 8, 1}, "float8_e4m3fnuz", nullptr},
    {{kDLFloat8_e5m2, 8, 1}, "float8_e5m2", nullptr},
    {{kDLFloat8_e5m2fnuz, 8, 1}, "float8_e5m2fnuz", nullptr},
};

const Row* find(DLDataType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

}  // namespace

const char* dtype_name(DLDataType dtype) {
  const Row* row = find(dtype);
  return row ? row->name : nullptr;
}

bool dtype_of_name(const char* name, DLDataType* out_dtype) {
  for (const Row& row : kRows) {
    if (std::strcmp(row.name, name) != 0) continue;
    *out_dtype = row.dtype;
    return true;
  }
  return false;
}

bool stands_for(DLDataType given, DLDataType expected) {
  const Row* row = find(expected);
  return row && !row->format && given == DLDataType{kDLUInt, expected.bits, 1};
}

const char* buffer_format(DLDataType dtype) {
  const Row* row = find(dtype);
  return row ? row->format : nullptr;
}

bool dtype_of_format(const char* format, int64_t itemsize, DLDataType* out_dtype) {
  if (format == nullptr) format = "B";
  // Native and little-endian mean the same here; '>' and '!' are foreign and fall through to "none".
  if (*format == '@' || *format == '=' || *format == '<' || *format == '|') ++format;
  auto bits = static_cast<uint8_t>(itemsize * 8);
  uint8_t code;
  if (format[0] == 'Z' && format[1] != '\0' && format[2] == '\0' && std::strchr("fd", format[1])) {
    code = kDLComplex;
  } else if (format[0] == '\0' || format[1] != '\0') {
    return false;
  } else if (std::strchr("efd", format[0])) {
    code = kDLFloat;
  } else if (std::strchr("bhilqn", format[0])) {
    code = kDLInt;
  } else if (std::strchr("cBHILQN", format[0])) {
    code = kDLUInt;
  } else if (format[0] == '?') {
    code = kDLBool;
  } else {
    return false;
  }
  if (itemsize < 1 || itemsize > 16) return false;
  *out_dtype = DLDataType{code, bits, 1};
  return true;
}

}  // namespace aotpack::python
