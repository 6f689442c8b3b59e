// With AOTPACK_TRACE defined, what operators were given and which tensors they had to bring into another
// layout: one JSON line per call, appended to the file that the environment variable AOTPACK_TRACE_FILE names.
//
//   {"op": "packed_conv", "tensors": [{"role": "x", "dtype": "float32", "sizes": [1, 3, 8, 8],
//    "strides": [192, 64, 8, 1], "relaid": 1}, ...]}
//
// `relaid` is 1 where the operator moved the tensor's elements into another layout or precision before (for a result:
// after) its work, which packing operators and to_layout always do; 0 where it worked on them in place. Without the
// definition there is no code of it. For tests and for finding out why a model is slow.
#pragma once

#include "tensor.h"

#if defined(AOTPACK_TRACE)
#include <string>
#endif

namespace aotpack::module {

#if defined(AOTPACK_TRACE)

// One call of an operator. The line is written at the end of the scope.
class Trace {
 public:
  explicit Trace(const char* op);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // `given` was replaced by `used` for the work; null `given`: an optional tensor that is not there.
  void tensor(const char* role, const Tensor* given, const Tensor* used) {
    if (given != nullptr) add(role, given, used->data != given->data);
  }
  void in_place(const char* role, const Tensor* given) {
    if (given != nullptr) add(role, given, false);
  }
  void moved(const char* role, const Tensor* given) {
    if (given != nullptr) add(role, given, true);
  }

 private:
  void add(const char* role, const Tensor* tensor, bool relaid);

  std::string line_;
  bool first_ = true;
};

#else

class Trace {
 public:
  explicit Trace(const char*) {}
  void tensor(const char*, const Tensor*, const Tensor*) {}
  void in_place(const char*, const Tensor*) {}
  void moved(const char*, const Tensor*) {}
};

#endif

}  // namespace aotpack::module
