// Tensors for calls: of any layout, in memory without a byte to spare, and sometimes invalid.
#pragma once

#include <cstdint>
#include <vector>

#include "aotpack/dlpack.h"

namespace aotpack::fuzz {

class Argument {
 public:
  // `plain`: row-major, from the start of its memory.
  Argument(DLDataType dtype, std::vector<int64_t> shape, bool plain);
  // The same memory as another argument.
  explicit Argument(const Argument& other);
  ~Argument();
  Argument& operator=(const Argument&) = delete;

  const DLTensor* tensor() const { return &tensor_; }
  // The first element, when it has one of 8 bytes.
  void set(int64_t value);
  // Breaks a field of the DLTensor.
  void spoil();

 private:
  void allocate(size_t bytes);

  DLTensor tensor_ = {};
  std::vector<int64_t> shape_;
  std::vector<int64_t> strides_;
  char* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace aotpack::fuzz
