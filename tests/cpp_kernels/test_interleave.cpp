#include "interleave.h"
#include "util.h"

namespace aotpack::kernels::test {
namespace {

template <class T>
T value_of(int64_t part, int64_t pixel, int64_t channel) {
  return static_cast<T>(part * 131 + pixel * 17 + channel * 3 + 1);
}

template <class T>
void check(int64_t pixels, int64_t c, int64_t parts, int threads) {
  CAPTURE(pixels);
  CAPTURE(c);
  CAPTURE(parts);
  CAPTURE(sizeof(T));
  std::vector<std::vector<T>> sources;
  std::vector<const void*> x;
  std::vector<int64_t> strides;
  for (int64_t j = 0; j < parts; ++j) {
    const int64_t stride = c + pick({0, 1, 5});
    // Exactly as long as what may be read.
    std::vector<T> source(static_cast<size_t>(pixels == 0 ? 0 : (pixels - 1) * stride + c), T{77});
    for (int64_t p = 0; p < pixels; ++p) {
      for (int64_t i = 0; i < c; ++i) source[static_cast<size_t>(p * stride + i)] = value_of<T>(j, p, i);
    }
    sources.push_back(std::move(source));
    x.push_back(sources.back().data());
    strides.push_back(stride);
  }
  std::vector<T> y(static_cast<size_t>(pixels * c * parts), T{99});
  interleave({pixels, c, parts, x.data(), strides.data(), y.data(), sizeof(T), threads});
  int64_t wrong = 0;
  for (int64_t p = 0; p < pixels; ++p) {
    for (int64_t i = 0; i < c; ++i) {
      for (int64_t j = 0; j < parts; ++j) {
        wrong += y[static_cast<size_t>((p * c + i) * parts + j)] != value_of<T>(j, p, i);
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("interleave: sizes of elements, numbers of parts, tails and strides") {
  for (const int64_t parts : {1, 2, 3, 4, 5, 8, 11}) {
    for (const int64_t c : {0, 1, 3, 16, 58, 116}) {
      for (const int64_t pixels : {0, 1, 7, 300}) {
        check<uint8_t>(pixels, c, parts, 1);
        check<uint16_t>(pixels, c, parts, 2);
        check<uint32_t>(pixels, c, parts, 3);
        check<uint64_t>(pixels, c, parts, 16);
      }
    }
  }
}

}  // namespace
}  // namespace aotpack::kernels::test
