// Tensors that a caller gives by name, against those that are wanted: the weights of an update, or a state.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aotpack/dlpack.h"
#include "base/dtype.h"

namespace aotpack::runtime {

// "[2, 3]"
std::string shape_text(const int64_t* sizes, size_t rank);

// Refers to a manifest.
struct WantedTensor {
  const std::string* name;
  const DType* dtype;
  const std::vector<int64_t>* shape;
  DLDevice device = {kDLCPU, 0};  // where it may be besides the CPU
};

// Everything that is wrong with what was given, so that one message tells it all.
class Problems {
 public:
  void add(std::string problem);
  // Throws INVALID_ARGUMENT, "<what>: <the first ten problems>", if there is any.
  void throw_if_any(const char* what) const;

 private:
  static constexpr size_t kShown = 10;
  std::vector<std::string> shown_;
  size_t count_ = 0;
};

// By wanted tensor.
struct GivenTensors {
  std::vector<const DLTensor*> tensors;  // NULL where nothing was given that has the right dtype and shape
  std::vector<bool> named;               // whether something was given at all
};

// Everything that does not fit is a problem, but for what is missing.
GivenTensors match_given(const std::vector<WantedTensor>& wanted, const char* const* names,
                         const DLTensor* const* tensors, size_t count, Problems* problems);

// Copies a tensor that passed `match_given` into another layout that spans `bytes`. Bools become 0 and 1.
void copy_given(const DLTensor& given, const DType& dtype, void* destination, const int64_t* strides,
                size_t bytes) noexcept;
// Whether two such of the same dtype and shape hold the same bytes.
bool same_bytes(const DLTensor& a, const DLTensor& b, size_t item) noexcept;

}  // namespace aotpack::runtime
