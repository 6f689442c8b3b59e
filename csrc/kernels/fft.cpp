#include "fft.h"

#include <atomic>
#include <cmath>
#include <new>

#include "parallel.h"

#define POCKETFFT_NO_MULTITHREADING
#define POCKETFFT_CACHE_SIZE 16
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#include "../third_party/pocketfft/pocketfft_hdronly.h"
#pragma GCC diagnostic pop

namespace aotpack::kernels {

namespace {

// Transforms are cut along the longest dim other than the axis; pieces of a few lines at least, as pocketfft transforms
// as many at a time as fit a vector.
struct Cut {
  int dim;
  int threads;
};

template <typename T>
Cut cut(const FftShape& shape, int num_threads) {
  int dim = shape.axis == 0 ? 1 : 0;
  double elements = 1;
  for (int d = 0; d < shape.rank; ++d) {
    elements *= static_cast<double>(shape.sizes[d]);
    if (d != shape.axis && shape.sizes[d] > shape.sizes[dim]) dim = d;
  }
  if (shape.rank == 1) return {0, 1};
  const double per_element = 0.3 * std::log2(static_cast<double>(shape.sizes[shape.axis]) + 1) + 1;  // ns
  int threads = worth_threads(elements * per_element / 1e3, num_threads);
  const auto lines = static_cast<int64_t>(elements) / shape.sizes[shape.axis];
  threads = static_cast<int>(min64(threads, lines * static_cast<int64_t>(sizeof(T)) / 32));
  threads = static_cast<int>(min64(threads, shape.sizes[dim]));
  return {dim, threads < 1 ? 1 : threads};
}

// transform(sizes, from_strides, to_strides, from, to) on each thread's piece.
template <typename T, class Transform>
void for_pieces(const FftShape& shape, const void* from, void* to, int num_threads, const Transform& transform) {
  const Cut plan = cut<T>(shape, num_threads);
  std::atomic<bool> failed{false};  // nothing may leave a parallel region by an exception
  parallel(plan.threads, [&](int thread, int threads) {
    try {
      pocketfft::shape_t sizes(shape.sizes, shape.sizes + shape.rank);
      const pocketfft::stride_t from_strides(shape.from_strides, shape.from_strides + shape.rank);
      const pocketfft::stride_t to_strides(shape.to_strides, shape.to_strides + shape.rank);
      const auto* source = static_cast<const char*>(from);
      auto* destination = static_cast<char*>(to);
      if (threads > 1) {
        const Range piece = share(shape.sizes[plan.dim], thread, threads);
        if (piece.begin == piece.end) return;
        sizes[static_cast<size_t>(plan.dim)] = static_cast<size_t>(piece.end - piece.begin);
        source += piece.begin * shape.from_strides[plan.dim];
        destination += piece.begin * shape.to_strides[plan.dim];
      }
      transform(sizes, from_strides, to_strides, source, destination);
    } catch (...) {
      failed = true;
    }
  });
  if (failed) throw std::bad_alloc();
}

}  // namespace

template <typename T>
void fft_c2c(const FftShape& shape, const void* from, void* to, bool forward, double factor, int num_threads) {
  for_pieces<T>(shape, from, to, num_threads,
                [&](const auto& sizes, const auto& from_strides, const auto& to_strides, auto* source, auto* result) {
                  pocketfft::c2c(sizes, from_strides, to_strides, {static_cast<size_t>(shape.axis)}, forward,
                                 reinterpret_cast<const std::complex<T>*>(source),
                                 reinterpret_cast<std::complex<T>*>(result), static_cast<T>(factor));
                });
}

template <typename T>
void fft_r2c(const FftShape& shape, const void* from, void* to, double factor, int num_threads) {
  for_pieces<T>(shape, from, to, num_threads,
                [&](const auto& sizes, const auto& from_strides, const auto& to_strides, auto* source, auto* result) {
                  pocketfft::r2c(sizes, from_strides, to_strides, static_cast<size_t>(shape.axis), pocketfft::FORWARD,
                                 reinterpret_cast<const T*>(source), reinterpret_cast<std::complex<T>*>(result),
                                 static_cast<T>(factor));
                });
}

template <typename T>
void fft_c2r(const FftShape& shape, const void* from, void* to, double factor, int num_threads) {
  for_pieces<T>(shape, from, to, num_threads,
                [&](const auto& sizes, const auto& from_strides, const auto& to_strides, auto* source, auto* result) {
                  pocketfft::c2r(sizes, from_strides, to_strides, static_cast<size_t>(shape.axis), pocketfft::BACKWARD,
                                 reinterpret_cast<const std::complex<T>*>(source), reinterpret_cast<T*>(result),
                                 static_cast<T>(factor));
                });
}

template void fft_c2c<float>(const FftShape&, const void*, void*, bool, double, int);
template void fft_c2c<double>(const FftShape&, const void*, void*, bool, double, int);
template void fft_r2c<float>(const FftShape&, const void*, void*, double, int);
template void fft_r2c<double>(const FftShape&, const void*, void*, double, int);
template void fft_c2r<float>(const FftShape&, const void*, void*, double, int);
template void fft_c2r<double>(const FftShape&, const void*, void*, double, int);

}  // namespace aotpack::kernels
