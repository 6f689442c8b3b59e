// Calls the operators of a module from Python's ctypes by names of the tests. A library of operators includes
// it once and defines kOperators.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../support/operators/call.h"

namespace {

struct Arguments {
  std::vector<Tensor*> tensors;  // null for none
  std::vector<int64_t> ints;
  double real;
  const char* text;

  AotpackTensor* optional(size_t i) { return i < tensors.size() && tensors[i] != nullptr ? &tensors[i] : nullptr; }
  std::vector<const AotpackTensor*> list(size_t first, size_t count) {
    std::vector<const AotpackTensor*> result;
    for (size_t i = first; i < first + count; ++i) result.push_back(optional(i));
    return result;
  }
};

using Results = std::vector<Tensor*>;
using Operator = void (*)(Arguments& a, Tensor** r);

struct Entry {
  int results;
  Operator call;
};

// A mutating operator hands its `out` back.
[[maybe_unused]] Tensor* again(Tensor* tensor) { return Call::current().retain(tensor); }

extern const std::map<std::string, Entry> kOperators;  // what the library defines

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Runs one operator. Returns the number of results, or -1 with `message` (message_size bytes) filled in. Blocks of the
// results go to operators_release.
int driver_run(const char* name, const aotpack_module_tensor* tensors, int tensor_count, const int64_t* ints,
               int int_count, double real, const char* text, int threads, aotpack_module_tensor* results, char* message,
               int message_size) {
  return in_call(threads, message, message_size, [&](Call& call) {
    Arguments a{{}, {ints, ints + int_count}, real, text};
    for (int i = 0; i < tensor_count; ++i) a.tensors.push_back(borrow(call, tensors[i]));
    const Entry& entry = kOperators.at(name);
    Tensor* r[4] = {};
    entry.call(a, r);
    call.give(r, static_cast<uint32_t>(entry.results), results);
    return entry.results;
  });
}
}
#pragma GCC visibility pop
