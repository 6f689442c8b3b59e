// Calls the operators of a module from Python's ctypes, outside of any module: a Call over malloc that counts its
// blocks.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "shim.h"

using aotpack::module::Call;
using aotpack::module::Error;
using aotpack::module::Tensor;

namespace {

int64_t live_blocks = 0;

void* allocate(void*, size_t bytes) {
  const size_t rounded = (bytes + 127) & ~size_t{63};
  void* block = std::aligned_alloc(64, rounded);
  std::memset(block, 0xa5, rounded);  // what was not written shows
  ++live_blocks;
  return block;
}
void release(void*, void* block) {
  std::free(block);
  --live_blocks;
}
void fail(void*, int32_t, const char*, size_t) {}
uint64_t seed(void*) { return 1; }

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
Tensor* again(Tensor* tensor) { return Call::current().retain(tensor); }

const std::map<std::string, Entry> kOperators = {
    {"cumsum",
     {1,
      [](Arguments& a, Tensor** r) {
        int32_t dtype = a.ints.size() > 1 ? static_cast<int32_t>(a.ints[1]) : 0;
        aoti_torch_cpu_cumsum(a.tensors[0], a.ints[0], a.ints.size() > 1 ? &dtype : nullptr, &r[0]);
      }}},
    {"cumprod",
     {1,
      [](Arguments& a, Tensor** r) {
        int32_t dtype = a.ints.size() > 1 ? static_cast<int32_t>(a.ints[1]) : 0;
        aoti_torch_cpu_cumprod(a.tensors[0], a.ints[0], a.ints.size() > 1 ? &dtype : nullptr, &r[0]);
      }}},
    {"logcumsumexp",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_logcumsumexp(a.tensors[0], a.ints[0], &r[0]); }}},
    {"cummax", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_cummax(a.tensors[0], a.ints[0], &r[0], &r[1]); }}},
    {"cummin", {2, [](Arguments& a, Tensor** r) { aoti_torch_cpu_cummin(a.tensors[0], a.ints[0], &r[0], &r[1]); }}},
    {"sort",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_sort(a.tensors[0], a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0], &r[1]);
      }}},
    {"sort_stable",
     {2,
      [](Arguments& a, Tensor** r) {
        int32_t stable = 1;
        aoti_torch_cpu_sort_stable(a.tensors[0], &stable, a.ints[0], static_cast<int32_t>(a.ints[1]), &r[0], &r[1]);
      }}},
    {"topk",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_topk(a.tensors[0], a.ints[0], a.ints[1], static_cast<int32_t>(a.ints[2]),
                            static_cast<int32_t>(a.ints[3]), &r[0], &r[1]);
      }}},
    {"kthvalue",
     {2,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_kthvalue(a.tensors[0], a.ints[0], a.ints[1], static_cast<int32_t>(a.ints[2]), &r[0], &r[1]);
      }}},
    {"searchsorted",
     {1,
      [](Arguments& a, Tensor** r) {
        const char* side = a.text;
        aoti_torch_cpu_searchsorted_Tensor(a.tensors[0], a.tensors[1], static_cast<int32_t>(a.ints[0]),
                                           static_cast<int32_t>(a.ints[1]), *side == '\0' ? nullptr : &side,
                                           a.optional(2), &r[0]);
      }}},
    {"searchsorted_scalar",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_searchsorted_Scalar(a.tensors[0], a.real, 0, static_cast<int32_t>(a.ints[0]), nullptr, nullptr,
                                           &r[0]);
      }}},
    {"bucketize",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_bucketize_Tensor(a.tensors[0], a.tensors[1], static_cast<int32_t>(a.ints[0]),
                                        static_cast<int32_t>(a.ints[1]), &r[0]);
      }}},
    {"index",
     {1,
      [](Arguments& a, Tensor** r) {
        auto indices = a.list(1, a.tensors.size() - 1);
        aoti_torch_cpu_index_Tensor(a.tensors[0], indices.data(), static_cast<int64_t>(indices.size()), &r[0]);
      }}},
    {"index_put",
     {1,
      [](Arguments& a, Tensor** r) {
        auto indices = a.list(2, a.tensors.size() - 2);
        aoti_torch_cpu_index_put(a.tensors[0], indices.data(), static_cast<int64_t>(indices.size()), a.tensors[1],
                                 static_cast<int32_t>(a.ints[0]), &r[0]);
      }}},
    {"index_put_out",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_index_put_out(a.tensors[0], a.tensors[0], a.tensors.data() + 2,
                                 static_cast<int64_t>(a.tensors.size()) - 2, a.tensors[1],
                                 static_cast<int32_t>(a.ints[0]));
        r[0] = again(a.tensors[0]);
      }}},
    {"nonzero", {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_nonzero(a.tensors[0], &r[0]); }}},
    {"nonzero_static",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_nonzero_static(a.tensors[0], a.ints[0], a.ints[1], &r[0]); }}},
    {"masked_select",
     {1, [](Arguments& a, Tensor** r) { aoti_torch_cpu_masked_select(a.tensors[0], a.tensors[1], &r[0]); }}},
    {"masked_scatter",
     {1, [](Arguments& a,
            Tensor** r) { aoti_torch_cpu_masked_scatter(a.tensors[0], a.tensors[1], a.tensors[2], &r[0]); }}},
    {"repeat_interleave",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_repeat_interleave_Tensor(a.tensors[0], a.ints.empty() ? nullptr : &a.ints[0], &r[0]);
      }}},
    {"scatter_src",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_scatter_src_out(a.tensors[0], a.tensors[1], a.ints[0], a.tensors[2], a.tensors[3]);
        r[0] = again(a.tensors[0]);
      }}},
    {"scatter_value",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_scatter_value_out(a.tensors[0], a.tensors[1], a.ints[0], a.tensors[2], a.real);
        r[0] = again(a.tensors[0]);
      }}},
    {"scatter_reduce",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_scatter_reduce_two_out(a.tensors[0], a.tensors[1], a.ints[0], a.tensors[2], a.tensors[3], a.text,
                                              static_cast<int32_t>(a.ints[1]));
        r[0] = again(a.tensors[0]);
      }}},
    {"index_reduce",
     {1,
      [](Arguments& a, Tensor** r) {
        aoti_torch_cpu_index_reduce(a.tensors[0], a.ints[0], a.tensors[1], a.tensors[2], a.text,
                                    static_cast<int32_t>(a.ints[1]), &r[0]);
      }}},
};

void* const kImports[] = {reinterpret_cast<void*>(allocate), reinterpret_cast<void*>(release),
                          reinterpret_cast<void*>(fail), reinterpret_cast<void*>(seed)};

}  // namespace

extern "C" {

// Runs one operator. A tensor whose dtype is negative stands for none. Returns the number of results, or -1 with
// `message` (message_size bytes) filled in. Blocks of the results go to driver_free.
int driver_run(const char* name, const aotpack_module_tensor* tensors, int tensor_count, const int64_t* ints,
               int int_count, double real, const char* text, int threads, aotpack_module_tensor* results, char* message,
               int message_size) {
  aotpack_module_call arguments{};
  arguments.struct_size = sizeof(arguments);
  arguments.imports = kImports;
  arguments.num_threads = threads;
  Call call(&arguments);
  try {
    Arguments a{{}, {ints, ints + int_count}, real, text};
    for (int i = 0; i < tensor_count; ++i)
      a.tensors.push_back(tensors[i].dtype < 0 ? nullptr : call.borrow(tensors[i]));
    const Entry& entry = kOperators.at(name);
    Tensor* r[4] = {};
    entry.call(a, r);
    call.give(r, static_cast<uint32_t>(entry.results), results);
    return entry.results;
  } catch (const Error& error) {
    std::strncpy(message, error.message().c_str(), static_cast<size_t>(message_size) - 1);
    return -1;
  }
}

void driver_free(void* block) { release(nullptr, block); }

int64_t driver_live_blocks() { return live_blocks; }
}
