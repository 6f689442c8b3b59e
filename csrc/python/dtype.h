// Element types: DLPack's, their names, and the format characters of the buffer protocol (PEP 3118).
#pragma once

#include <cstdint>

#include "aotpack/dlpack.h"

namespace aotpack::python {

inline bool operator==(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

inline int64_t itemsize(DLDataType dtype) { return (int64_t{dtype.bits} * dtype.lanes + 7) / 8; }

// "float32", ...; null when the manifest has no such dtype.
const char* dtype_name(DLDataType dtype);

// The dtype of that name; false when there is none.
bool dtype_of_name(const char* name, DLDataType* out_dtype);

// Whether an array of `given` passes for one of `expected`: uint16 for bfloat16, uint8 for the dtypes of float8. numpy
// and the buffer protocol have no names for these.
bool stands_for(DLDataType given, DLDataType expected);

// The format of the buffer protocol, "f" for float32; null when there is none (bfloat16, float8).
const char* buffer_format(DLDataType dtype);

// The dtype that a buffer's format and item size stand for; false when there is none. A null format means bytes.
bool dtype_of_format(const char* format, int64_t itemsize, DLDataType* out_dtype);

}  // namespace aotpack::python
