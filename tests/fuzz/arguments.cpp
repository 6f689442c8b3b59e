#include "arguments.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "choices.h"

namespace aotpack::fuzz {
namespace {

constexpr int64_t kLargest = 1 << 16;  // elements

}  // namespace

Argument::Argument(DLDataType dtype, std::vector<int64_t> shape, bool plain)
    : shape_(std::move(shape)), strides_(shape_.size(), 0) {
  const int64_t item = dtype.bits / 8;
  int64_t count = 1;
  bool empty = false, large = false;
  for (const int64_t size : shape_) {
    empty |= size <= 0;
    large |= size > 0 && (__builtin_mul_overflow(count, size, &count) || count > kLargest);
  }
  tensor_.dtype = dtype;
  tensor_.device = {kDLCPU, 0};
  tensor_.ndim = static_cast<int32_t>(shape_.size());
  tensor_.shape = shape_.data();
  if (large && !empty) {
    // Zero strides: one element in memory.
    allocate(static_cast<size_t>(item));
    tensor_.strides = strides_.data();
    return;
  }
  if (plain || empty) {
    allocate(empty ? 0 : static_cast<size_t>(count * item));
    if (chance(50)) {
      int64_t stride = 1;
      for (size_t i = shape_.size(); i-- > 0;) {
        strides_[i] = stride;
        // Of an empty tensor, they may be anything.
        if (__builtin_mul_overflow(stride, std::max<int64_t>(shape_[i], 1), &stride)) {
          stride = 1;
        }
      }
      tensor_.strides = strides_.data();
    }
    return;
  }
  std::vector<size_t> order(shape_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = 1; i < order.size(); ++i) {
    std::swap(order[i], order[pick(i + 1)]);
  }
  int64_t reach = 1, low = 0, high = 0;
  for (const size_t i : order) {
    int64_t stride = chance(10) ? 0 : chance(10) ? 1 : reach * (1 + (chance(25) ? static_cast<int64_t>(pick(3)) : 0));
    stride = chance(25) ? -stride : stride;
    strides_[i] = stride;
    const int64_t step = (shape_[i] - 1) * stride;
    (step < 0 ? low : high) += step;
    reach = std::max(reach, std::abs(stride)) * shape_[i];
    if (reach > kLargest) {
      reach = 1;
    }
  }
  for (size_t i = 0; i < shape_.size(); ++i) {
    // Of an axis of one element it may be anything.
    if (shape_[i] == 1 && chance(30)) {
      strides_[i] = static_cast<int64_t>(draw());
    }
  }
  const size_t skew = chance(20) ? pick(8) : 0;
  allocate(static_cast<size_t>((high - low + 1) * item) + skew);
  tensor_.byte_offset = skew + static_cast<uint64_t>(-low * item);
  tensor_.strides = strides_.data();
}

Argument::Argument(const Argument& other) : tensor_(other.tensor_), shape_(other.shape_), strides_(other.strides_) {
  tensor_.shape = shape_.data();
  tensor_.strides = other.tensor_.strides == nullptr ? nullptr : strides_.data();
}

Argument::~Argument() { free(memory_); }

void Argument::allocate(size_t bytes) {
  bytes_ = bytes;
  memory_ = static_cast<char*>(malloc(std::max<size_t>(bytes, 1)));
  // Bools of any byte too.
  memset(memory_, chance(80) ? static_cast<int>(pick(3)) : static_cast<int>(pick(256)), std::max<size_t>(bytes, 1));
  tensor_.data = memory_;
}

void Argument::set(int64_t value) {
  if (memory_ != nullptr && tensor_.byte_offset + sizeof value <= bytes_) {
    memcpy(memory_ + tensor_.byte_offset, &value, sizeof value);
  }
}

void Argument::spoil() {
  switch (pick(6)) {
    case 0:
      tensor_.data = nullptr;
      break;
    case 1:
      // No more than there are sizes to read.
      tensor_.ndim = static_cast<int32_t>(pick(shape_.size() + 1)) - static_cast<int32_t>(pick(3));
      break;
    case 2:
      tensor_.dtype.lanes = static_cast<uint16_t>(pick(3));
      break;
    case 3:
      tensor_.shape = nullptr;
      break;
    case 4:
      tensor_.device.device_type = static_cast<DLDeviceType>(pick(20));
      break;
    default:
      tensor_.dtype = {static_cast<uint8_t>(pick(8)), static_cast<uint8_t>(pick(256)), 1};
  }
}

}  // namespace aotpack::fuzz
