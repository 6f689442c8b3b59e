#include "device/host_step.h"

#include <algorithm>
#include <cstdlib>

#include "imports.h"

namespace aotpack::module {

namespace {

void* host_alloc(void*, size_t bytes) {
  const size_t rounded = (bytes + AOTPACK_ALIGNMENT - 1) / AOTPACK_ALIGNMENT * AOTPACK_ALIGNMENT;
  if (rounded < bytes) return nullptr;
  return std::aligned_alloc(AOTPACK_ALIGNMENT, rounded == 0 ? AOTPACK_ALIGNMENT : rounded);
}

void host_free(void*, void* block) { std::free(block); }

// Whether the elements fill the memory from the first to the last.
bool is_dense(const Tensor* tensor) { return extent(tensor) == tensor->numel() * element_size(tensor->dtype); }

void write(Tensor* to, const Tensor* from) {
  const int64_t bytes = extent(from);
  if (bytes == 0) return;
  if (to->storage->on_host) {
    std::memcpy(to->data, from->data, static_cast<size_t>(bytes));
  } else {
    upload(to->data, from->data, bytes);
  }
}

bool has_strides(const Tensor* tensor, const int64_t* strides) {
  // Strides of dims of size 1 mean nothing, and those of no elements neither.
  if (tensor->numel() == 0) return true;
  for (int32_t d = 0; d < tensor->rank; ++d) {
    if (tensor->sizes[d] != 1 && tensor->strides[d] != strides[d]) return false;
  }
  return true;
}

}  // namespace

#define AOTPACK_ONE(name) +1
HostStep::Imports::Imports(const aotpack_module_call& outer)
    : functions(outer.imports,
                outer.imports + (0 AOTPACK_MODULE_IMPORTS(AOTPACK_ONE) AOTPACK_DEVICE_IMPORTS(AOTPACK_ONE))),
      call(outer) {
  functions[import_alloc] = reinterpret_cast<void*>(&host_alloc);
  functions[import_free] = reinterpret_cast<void*>(&host_free);
  call.imports = functions.data();
  call.device = {kHostDevice, 0};
}
#undef AOTPACK_ONE

HostStep::HostStep()
    : outer_(Call::current()), imports_(outer_.arguments()), call_(&imports_.call), threads_(outer_.num_threads()) {}

Tensor* HostStep::operand(const Tensor* tensor) {
  Tensor* copy = call_.empty(tensor->rank, tensor->sizes, tensor->strides, tensor->dtype);
  if (const int64_t bytes = extent(tensor)) read(tensor, copy->data, bytes);
  return copy;
}

Tensor** HostStep::optional(Tensor* const* tensor) {
  return tensor == nullptr ? nullptr : &handles_.emplace_back(*tensor == nullptr ? nullptr : operand(*tensor));
}

Tensor* const* HostStep::operands(Tensor* const* tensors, int64_t count) {
  std::vector<Tensor*>& list = lists_.emplace_back();
  for (int64_t i = 0; i < count; ++i) list.push_back(operand(tensors[i]));
  return list.data();
}

Tensor* const** HostStep::optional_operands(Tensor* const** tensors, int64_t count) {
  std::vector<Tensor* const*>& list = optional_lists_.emplace_back();
  for (int64_t i = 0; i < count; ++i) list.push_back(optional(tensors[i]));
  return list.data();
}

Tensor* HostStep::written(Tensor* tensor) {
  // Memory between the elements is uploaded too.
  Tensor* copy =
      is_dense(tensor) ? call_.empty(tensor->rank, tensor->sizes, tensor->strides, tensor->dtype) : operand(tensor);
  written_.emplace_back(tensor, copy);
  return copy;
}

Tensor** HostStep::result(Tensor** to) {
  if (to == nullptr) return nullptr;
  results_.emplace_back(to, &handles_.emplace_back(nullptr));
  return results_.back().second;
}

void HostStep::finish() {
  for (const auto& [to, from] : written_) write(to, from);
  for (const auto& [to, from] : results_) {
    *to = nullptr;
    if (*from == nullptr) continue;
    *to = outer_.empty((*from)->rank, (*from)->sizes, (*from)->strides, (*from)->dtype);
    write(*to, *from);
  }
}

void conform(torch::aot_inductor::RAIIAtenTensorHandle& result, std::initializer_list<int64_t> sizes,
             std::initializer_list<int64_t> strides) {
  const Tensor* tensor = result.get();
  if (!std::equal(tensor->sizes, tensor->sizes + tensor->rank, sizes.begin(), sizes.end())) {
    throw_invalid("an operator on the host returned other sizes than its fake implementation");
  }
  if (has_strides(tensor, strides.begin())) return;
  Tensor* mended = nullptr;
  {
    HostStep step;
    const Tensor* from = step.operand(tensor);
    Owned to(Call::current().empty(tensor->rank, sizes.begin(), strides.begin(), tensor->dtype));
    copy_strided(to.get(), from);
    *step.result(&mended) = to.release();
    step.finish();
  }
  result = torch::aot_inductor::RAIIAtenTensorHandle(mended);
}

}  // namespace aotpack::module
