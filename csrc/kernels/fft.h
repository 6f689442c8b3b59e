// Fourier transforms along one axis of strided arrays, of any length.
//
// pocketfft (third_party/pocketfft) does the transforms; here is how they are spread over threads. Its plans, that is
// factors and twiddles of a length, are kept for the last 16 lengths of each kind, under a mutex: any number of threads
// may call at a time.
#pragma once

#include "types.h"

namespace aotpack::kernels {

// What is transformed: `sizes` of `rank` >= 1 dims, all >= 1; strides count bytes, 0 and negative ones are fine where
// it is read. `axis` is transformed and the result multiplied by `factor`.
struct FftShape {
  int rank;
  const int64_t* sizes;
  const int64_t* from_strides;
  const int64_t* to_strides;
  int axis;
};

// Complex to complex; `from` and `to` may be the same memory with the same strides. T is float or double; elements are
// pairs of T. Throws std::bad_alloc.
template <typename T>
void fft_c2c(const FftShape& shape, const void* from, void* to, bool forward, double factor, int num_threads);
// Real to the first sizes[axis] / 2 + 1 complex elements, forward. `sizes` are those of `from`.
template <typename T>
void fft_r2c(const FftShape& shape, const void* from, void* to, double factor, int num_threads);
// The first sizes[axis] / 2 + 1 complex elements to real ones, backward. `sizes` are those of `to`. Imaginary parts of
// the first element and, for an even size, of the last do not count.
template <typename T>
void fft_c2r(const FftShape& shape, const void* from, void* to, double factor, int num_threads);

}  // namespace aotpack::kernels
