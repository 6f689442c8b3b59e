// odd.h: calls any operator of a module with values from an array, for tests that hand over odd tensors under
// sanitizers. Every block, of inputs too, is as large as it must be and no larger, so that each access outside of it is
// noticed.
#pragma once

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "operators.h"
#include "shim.h"

using aotpack::module::Call;
using aotpack::module::Error;
using aotpack::module::Tensor;

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
        const aotpack_module_tensor& given = values_[i].tensors[j];
        tensors_[i].push_back(given.dtype < 0 ? nullptr : call.borrow(given));
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

namespace {

int64_t live_blocks = 0;

void* allocate(void*, size_t bytes) {
  void* block = nullptr;
  if (posix_memalign(&block, 64, bytes) != 0) return nullptr;
  std::memset(block, 0xa5, bytes);  // what was not written shows
  ++live_blocks;
  return block;
}
void release(void*, void* block) {
  std::free(block);
  --live_blocks;
}
void fail(void*, int32_t, const char*, size_t) {}
uint64_t seed(void*) { return 1; }

void* const kImports[] = {reinterpret_cast<void*>(allocate), reinterpret_cast<void*>(release),
                          reinterpret_cast<void*>(fail), reinterpret_cast<void*>(seed)};

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Returns 0, or -1 with `message` filled in.
int odd_run(const char* name, const Value* values, int value_count, int threads, int result_count,
            aotpack_module_tensor* results, char* message, int message_size) {
  aotpack_module_call arguments{};
  arguments.struct_size = sizeof(arguments);
  arguments.imports = kImports;
  arguments.num_threads = threads;
  Call call(&arguments);
  try {
    Values given(call, values, value_count);
    std::vector<Tensor*> made(static_cast<size_t>(result_count) + 1, nullptr);
    kCalls.at(name)(given, made.data());
    call.give(made.data(), static_cast<uint32_t>(result_count), results);
    return 0;
  } catch (const Error& error) {
    std::strncpy(message, error.message().c_str(), static_cast<size_t>(message_size) - 1);
    return -1;
  }
}

// Exactly `bytes` bytes, `shift` behind a block's start, so that what comes before is noticed too only for shift 0.
void* odd_allocate(int64_t bytes) {
  void* block = nullptr;
  return posix_memalign(&block, 64, static_cast<size_t>(bytes)) == 0 ? block : nullptr;
}
void odd_free(void* block) { std::free(block); }
void odd_release(void* block) { release(nullptr, block); }
int64_t odd_live_blocks() { return live_blocks; }
}
#pragma GCC visibility pop
