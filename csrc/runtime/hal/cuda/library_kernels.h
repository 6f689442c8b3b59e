// Small kernels around the work of libraries.
#pragma once

#include <cstdint>

#include "hal/cuda/library_work.h"

namespace aotpack::runtime::cuda {

// Multiplies `count` real numbers, of 4 or 8 bytes each, by `factor`.
void scale(const LibraryWork& work, void* data, int64_t count, size_t item, double factor);

// Writes zeros above the diagonal of `batch` dense column-major matrices, or below it if `upper` is kept.
void clear_triangle(const LibraryWork& work, void* data, int64_t batch, int64_t rows, int64_t columns, size_t item,
                    bool upper);

}  // namespace aotpack::runtime::cuda
