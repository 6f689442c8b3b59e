#include "kernels.h"

#include <cstring>
#include <type_traits>

namespace fake_cuda {
namespace {

using Arguments = std::vector<std::string>;

template <typename T>
T value(const std::string& argument) {
  T result;
  std::memcpy(&result, argument.data(), sizeof result);
  return result;
}

template <typename T>
T* array(const Arguments& arguments, size_t index, size_t count, const Access& access) {
  return reinterpret_cast<T*>(access(value<uint64_t>(arguments[index]), count * sizeof(T)));
}

// y[i] = scale * x[i] + w[i % width]: y, x, w, width, count, scale.
void affine(const Arguments& arguments, const Access& access, const Grid&) {
  const auto width = value<int32_t>(arguments[3]);
  const auto count = static_cast<size_t>(value<int32_t>(arguments[4]));
  const auto scale = value<float>(arguments[5]);
  auto* y = array<float>(arguments, 0, count, access);
  const auto* x = array<float>(arguments, 1, count, access);
  const auto* w = array<float>(arguments, 2, static_cast<size_t>(width), access);
  for (size_t i = 0; i < count; ++i) y[i] = scale * x[i] + w[i % static_cast<size_t>(width)];
}

// x[i] += amount: x, count, amount.
void increment(const Arguments& arguments, const Access& access, const Grid&) {
  const auto count = static_cast<size_t>(value<int32_t>(arguments[1]));
  auto* x = array<float>(arguments, 0, count, access);
  for (size_t i = 0; i < count; ++i) x[i] += value<float>(arguments[2]);
}

// What csrc/runtime/hal/cuda/strided.cpp has as PTX.
void strided(const Arguments& arguments, const Access& access, const Grid&) {
  struct {
    uint64_t to, from, count;
    uint32_t rank, unit;
    int64_t sizes[17], to_strides[17], from_strides[17];
  } copy;
  static_assert(sizeof copy == 440);
  std::memcpy(&copy, arguments[0].data(), sizeof copy);
  for (uint64_t i = 0; i < copy.count; ++i) {
    uint64_t rest = i;
    uint64_t to = copy.to, from = copy.from;
    for (uint32_t axis = copy.rank; axis-- > 0;) {
      const uint64_t index = rest % static_cast<uint64_t>(copy.sizes[axis]);
      rest /= static_cast<uint64_t>(copy.sizes[axis]);
      to += index * static_cast<uint64_t>(copy.to_strides[axis]) * copy.unit;
      from += index * static_cast<uint64_t>(copy.from_strides[axis]) * copy.unit;
    }
    if (to % copy.unit != 0 || from % copy.unit != 0) throw Fault{716};
    std::memcpy(access(to, copy.unit), access(from, copy.unit), copy.unit);
  }
}

// What csrc/runtime/hal/cuda/library_kernels.cpp has as PTX. x[i] *= factor: x, count, factor, whether x is of floats.
void scale(const Arguments& arguments, const Access& access, const Grid&) {
  const auto count = value<uint64_t>(arguments[1]);
  const auto factor = value<double>(arguments[2]);
  const auto multiply = [&](auto* x) {
    for (size_t i = 0; i < count; ++i) x[i] *= static_cast<std::remove_pointer_t<decltype(x)>>(factor);
  };
  if (value<uint32_t>(arguments[3]) == 1) return multiply(array<float>(arguments, 0, count, access));
  multiply(array<double>(arguments, 0, count, access));
}

// Zeros in one triangle of column-major matrices: x, count, rows, columns, words of 4 bytes in an element, whether the
// upper one is kept.
void triangle(const Arguments& arguments, const Access& access, const Grid&) {
  const auto count = value<uint64_t>(arguments[1]), rows = value<uint64_t>(arguments[2]);
  const auto columns = value<uint64_t>(arguments[3]);
  const auto words = value<uint32_t>(arguments[4]);
  const bool upper = value<uint32_t>(arguments[5]) == 1;
  auto* x = array<uint32_t>(arguments, 0, count * words, access);
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t row = i % rows, column = i / rows % columns;
    if (upper ? row > column : row < column) std::memset(x + i * words, 0, words * sizeof(uint32_t));
  }
}

void device_assert(const Arguments&, const Access&, const Grid&) { throw Fault{710}; }

const Kernel kKernels[] = {
    {"affine", {8, 8, 8, 4, 4, 4}, affine},
    {"increment", {8, 4, 4}, increment},
    {"aotpack_strided", {440}, strided},
    {"aotpack_scale", {8, 8, 8, 4}, scale},
    {"aotpack_triangle", {8, 8, 8, 8, 4, 4}, triangle},
    {"device_assert", {}, device_assert},
};

}  // namespace

const Kernel* find_kernel(const std::string& name) {
  for (const Kernel& kernel : kKernels) {
    if (name == kernel.name) return &kernel;
  }
  return nullptr;
}

}  // namespace fake_cuda
