// Calls any operator of a module with values from an array, for tests that hand over odd tensors under
// sanitizers. Every block, of inputs too, is as large as it must be and no larger, so that each access outside of it is
// noticed.
#pragma once

#include <list>
#include <map>
#include <string>
#include <vector>

#include "../support/operators/call.h"

// What Python hands over (worker.py). A value that is absent has `count` -1.
struct Value {
  const aotpack_module_tensor* tensors;  // those with dtype -1 are absent
  const int64_t* ints;
  const double* reals;
  const char* text;
  int64_t count;
};

class Values {
 public:
  Values(Call& call, const Value* values, int count) : values_(values, values + count), tensors_(values_.size()) {
    for (size_t i = 0; i < values_.size(); ++i) {
      if (values_[i].tensors == nullptr) continue;
      for (int64_t j = 0; j < values_[i].count; ++j) {
        tensors_[i].push_back(borrow(call, values_[i].tensors[j]));
      }
      for (Tensor*& tensor : tensors_[i]) optional_[i].push_back(tensor == nullptr ? nullptr : &tensor);
    }
  }
  bool has(size_t i) const { return values_[i].count >= 0; }
  AotpackTensor tensor(size_t i) { return tensors_[i].at(0); }
  AotpackTensor* optional_tensor(size_t i) { return has(i) ? &tensors_[i].at(0) : nullptr; }
  const AotpackTensor* tensors(size_t i) { return tensors_[i].data(); }
  const AotpackTensor** optional_tensors(size_t i) { return optional_[i].data(); }
  int64_t int64(size_t i) { return values_[i].ints[0]; }
  int64_t* optional_int64(size_t i) { return has(i) ? const_cast<int64_t*>(values_[i].ints) : nullptr; }
  const int64_t* ints(size_t i) { return values_[i].ints; }
  const int64_t** optional_ints(size_t i) { return has(i) ? &values_[i].ints : nullptr; }
  int32_t int32(size_t i) { return static_cast<int32_t>(values_[i].ints[0]); }
  int32_t* optional_int32(size_t i) {
    if (!has(i)) return nullptr;
    return &int32s_.emplace_back(static_cast<int32_t>(values_[i].ints[0]));
  }
  const int32_t* int32s(size_t i) {
    lists_.emplace_back(values_[i].ints, values_[i].ints + values_[i].count);
    return lists_.back().data();
  }
  double real(size_t i) { return values_[i].reals[0]; }
  double* optional_real(size_t i) { return has(i) ? const_cast<double*>(values_[i].reals) : nullptr; }
  const double* reals(size_t i) { return values_[i].reals; }
  const char* text(size_t i) { return values_[i].text; }
  const char** optional_text(size_t i) { return has(i) ? &values_[i].text : nullptr; }
  int64_t length(size_t i) { return has(i) ? values_[i].count : 0; }

 private:
  std::vector<Value> values_;
  std::vector<std::vector<Tensor*>> tensors_;
  std::map<size_t, std::vector<const AotpackTensor*>> optional_;
  std::list<int32_t> int32s_;
  std::list<std::vector<int32_t>> lists_;
};

using Call1 = void (*)(Values& v, Tensor** r);
extern const std::map<std::string, Call1> kCalls;

#pragma GCC visibility push(default)
extern "C" {

// Returns 0, or -1 with `message` filled in.
int odd_run(const char* name, const Value* values, int value_count, int threads, int result_count,
            aotpack_module_tensor* results, char* message, int message_size) {
  return in_call(threads, message, message_size, [&](Call& call) {
    Values given(call, values, value_count);
    std::vector<Tensor*> made(static_cast<size_t>(result_count) + 1, nullptr);
    kCalls.at(name)(given, made.data());
    call.give(made.data(), static_cast<uint32_t>(result_count), results);
    return 0;
  });
}

// A block for an input, of exactly `bytes` bytes.
void* odd_allocate(int64_t bytes) {
  void* block = nullptr;
  return posix_memalign(&block, 64, static_cast<size_t>(bytes)) == 0 ? block : nullptr;
}
void odd_free(void* block) { std::free(block); }
}
#pragma GCC visibility pop
