// What most generated kernels include.
//
// TorchInductor's own header (torch/csrc/inductor/cpp_prefix.h) takes GCC 1.6 seconds to read, and the code of most
// models a tenth of that to compile. These headers have what kernels commonly use, under the same names and with the
// same results bit for bit, on GCC's vector extension and without a header of the standard library. The build chooses
// by the words of a kernel (aotpack/export/backends/cpu/kernel_words.py); a compiler that this is not written for, or
// that fails on it, gets torch's header.
#pragma once

#if defined(AOTPACK_TORCH_VECTORS) || !defined(__GNUC__) || defined(__clang__) || !defined(__x86_64__) || \
    !(defined(CPU_CAPABILITY_AVX2) || defined(CPU_CAPABILITY_AVX512))
#include <torch/csrc/inductor/cpp_prefix.h>
namespace aotpack_std = std;
#else
#define AOTPACK_OWN_VECTORS
#include "failures.h"
#include "masks.h"
#include "scalars.h"
#include "vectors.h"
#include "welford.h"
#endif
