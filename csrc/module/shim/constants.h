// Devices, layouts, memory formats and dtypes as torch numbers them.
#pragma once

#include <cstdint>

#include "aotpack/module_abi.h"

inline int32_t aoti_torch_device_type_cpu() { return 0; }
inline int32_t aoti_torch_device_type_cuda() { return 1; }
inline int32_t aoti_torch_device_type_meta() { return 14; }
inline int32_t aoti_torch_layout_strided() { return 0; }
inline int32_t aoti_torch_memory_format_contiguous_format() { return 0; }
inline int32_t aoti_torch_memory_format_preserve_format() { return 1; }
inline int32_t aoti_torch_memory_format_channels_last() { return 2; }
inline int32_t aoti_torch_memory_format_channels_last_3d() { return 3; }
inline int32_t aoti_torch_dtype_uint8() { return AOTPACK_DTYPE_UINT8; }
inline int32_t aoti_torch_dtype_int8() { return AOTPACK_DTYPE_INT8; }
inline int32_t aoti_torch_dtype_int16() { return AOTPACK_DTYPE_INT16; }
inline int32_t aoti_torch_dtype_int32() { return AOTPACK_DTYPE_INT32; }
inline int32_t aoti_torch_dtype_int64() { return AOTPACK_DTYPE_INT64; }
inline int32_t aoti_torch_dtype_float16() { return AOTPACK_DTYPE_FLOAT16; }
inline int32_t aoti_torch_dtype_float32() { return AOTPACK_DTYPE_FLOAT32; }
inline int32_t aoti_torch_dtype_float64() { return AOTPACK_DTYPE_FLOAT64; }
inline int32_t aoti_torch_dtype_complex64() { return AOTPACK_DTYPE_COMPLEX64; }
inline int32_t aoti_torch_dtype_complex128() { return AOTPACK_DTYPE_COMPLEX128; }
inline int32_t aoti_torch_dtype_bool() { return AOTPACK_DTYPE_BOOL; }
inline int32_t aoti_torch_dtype_bfloat16() { return AOTPACK_DTYPE_BFLOAT16; }
inline int32_t aoti_torch_dtype_uint16() { return AOTPACK_DTYPE_UINT16; }
inline int32_t aoti_torch_dtype_uint32() { return AOTPACK_DTYPE_UINT32; }
inline int32_t aoti_torch_dtype_uint64() { return AOTPACK_DTYPE_UINT64; }
inline int32_t aoti_torch_dtype_float8_e4m3fn() { return AOTPACK_DTYPE_FLOAT8_E4M3FN; }
inline int32_t aoti_torch_dtype_float8_e4m3fnuz() { return AOTPACK_DTYPE_FLOAT8_E4M3FNUZ; }
inline int32_t aoti_torch_dtype_float8_e5m2() { return AOTPACK_DTYPE_FLOAT8_E5M2; }
inline int32_t aoti_torch_dtype_float8_e5m2fnuz() { return AOTPACK_DTYPE_FLOAT8_E5M2FNUZ; }

#define CACHE_TORCH_DTYPE(name) \
  [[maybe_unused]] static constexpr int32_t cached_torch_dtype_##name = aotpack_dtype_##name
#define CACHE_TORCH_DEVICE(name) \
  [[maybe_unused]] static constexpr int32_t cached_torch_device_type_##name = aotpack_device_##name
#define CACHE_TORCH_LAYOUT(name) \
  [[maybe_unused]] static constexpr int32_t cached_torch_layout_##name = aotpack_layout_##name
#define CACHE_TORCH_MEMORY_FORMAT(name) \
  [[maybe_unused]] static const int32_t cached_torch_memory_format_##name = aoti_torch_memory_format_##name()
inline constexpr int32_t aotpack_dtype_uint8 = AOTPACK_DTYPE_UINT8, aotpack_dtype_int8 = AOTPACK_DTYPE_INT8,
                         aotpack_dtype_int16 = AOTPACK_DTYPE_INT16, aotpack_dtype_int32 = AOTPACK_DTYPE_INT32,
                         aotpack_dtype_int64 = AOTPACK_DTYPE_INT64, aotpack_dtype_float16 = AOTPACK_DTYPE_FLOAT16,
                         aotpack_dtype_float32 = AOTPACK_DTYPE_FLOAT32, aotpack_dtype_float64 = AOTPACK_DTYPE_FLOAT64,
                         aotpack_dtype_complex64 = AOTPACK_DTYPE_COMPLEX64,
                         aotpack_dtype_complex128 = AOTPACK_DTYPE_COMPLEX128, aotpack_dtype_bool = AOTPACK_DTYPE_BOOL,
                         aotpack_dtype_bfloat16 = AOTPACK_DTYPE_BFLOAT16, aotpack_dtype_uint16 = AOTPACK_DTYPE_UINT16,
                         aotpack_dtype_uint32 = AOTPACK_DTYPE_UINT32, aotpack_dtype_uint64 = AOTPACK_DTYPE_UINT64,
                         aotpack_dtype_float8_e4m3fn = AOTPACK_DTYPE_FLOAT8_E4M3FN,
                         aotpack_dtype_float8_e4m3fnuz = AOTPACK_DTYPE_FLOAT8_E4M3FNUZ,
                         aotpack_dtype_float8_e5m2 = AOTPACK_DTYPE_FLOAT8_E5M2,
                         aotpack_dtype_float8_e5m2fnuz = AOTPACK_DTYPE_FLOAT8_E5M2FNUZ;
inline constexpr int32_t aotpack_device_cpu = 0, aotpack_device_cuda = 1, aotpack_layout_strided = 0;
