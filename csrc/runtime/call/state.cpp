#include "call/state.h"

#include <cstring>
#include <numeric>

#include "base/status.h"
#include "base/strided.h"
#include "call/given.h"
#include "call/tensor.h"

namespace aotpack::runtime {
namespace {

[[noreturn]] void no_memory(size_t bytes, const ConstantRecord& record) {
  fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes for this context's copy of '%s'", bytes, record.name.c_str());
}

// The bytes that shape and stride span.
size_t size_of(const ConstantRecord& record) {
  uint64_t extent = 0;
  (void)extent_of(record.shape, record.stride, &extent);  // the manifest's reader has checked that it fits
  return static_cast<size_t>(extent * record.dtype->size);
}

}  // namespace

void State::ensure(const WeightSet& weights, Pool* pool) {
  if (!copies_.empty()) return;
  copies_.resize(model_.archive().manifest().constants.size());
  ++version_;
  try {
    for (const uint32_t constant : model_.state()) make(constant, weights, pool);
  } catch (...) {
    reset();
    throw;
  }
}

void State::make(size_t constant, const WeightSet& weights, Pool* pool) {
  const Archive& archive = model_.archive();
  Copy& copy = copies_[constant];
  // Only the archive's own value can be mapped; that of an update is in memory.
  if (weights.data(constant) == archive.constant(constant)) copy.map = archive.copy_on_write(constant);
  copy.data = copy.map.data();
  if (copy.data != nullptr) return;
  const ConstantRecord& record = archive.manifest().constants[constant];
  // No more: an update has no more, and a module reads no more.
  const size_t bytes = size_of(record);
  copy.data = pool->allocate(bytes);
  if (copy.data == nullptr) no_memory(bytes, record);
  std::memcpy(copy.data, weights.data(constant), bytes);
}

void State::reset() noexcept {
  for (Copy& copy : copies_) {
    if (copy.data != nullptr && copy.map.data() == nullptr) Pool::release_block(copy.data);
  }
  copies_.clear();
  ++version_;
}

DLManagedTensorVersioned* State::get(size_t index, const WeightSet& weights, Pool* pool) const {
  const uint32_t constant = model_.state()[index];
  const ConstantRecord& record = model_.archive().manifest().constants[constant];
  const auto rank = static_cast<int32_t>(record.shape.size());
  uint32_t order[AOTPACK_MAX_RANK];
  std::iota(order, order + rank, 0u);
  int64_t strides[AOTPACK_MAX_RANK];
  size_t bytes = 0;
  void* block = nullptr;
  if (dense_strides(record.shape.data(), order, rank, record.dtype->size, strides, &bytes)) {
    block = pool->allocate(bytes);
  }
  if (block == nullptr) no_memory(bytes, record);
  const void* value = copies_.empty() ? weights.data(constant) : data(constant);
  strided_copy(block, strides, value, record.stride.data(), record.shape.data(), rank, record.dtype->size);
  DLManagedTensorVersioned* tensor = make_tensor(pool, block, block, *record.dtype, rank, record.shape.data(), strides);
  if (tensor == nullptr) {
    Pool::release_block(block);
    no_memory(bytes, record);
  }
  return tensor;
}

void State::load(const char* const* names, const DLTensor* const* tensors, size_t count, const WeightSet& weights,
                 Pool* pool) {
  const std::vector<ConstantRecord>& records = model_.archive().manifest().constants;
  std::vector<WantedTensor> wanted;
  for (const uint32_t constant : model_.state()) {
    wanted.push_back({&records[constant].name, records[constant].dtype, &records[constant].shape});
  }
  Problems problems;
  const GivenTensors given = match_given(wanted, names, tensors, count, &problems);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!given.named[i]) problems.add("'" + *wanted[i].name + "' is missing");
  }
  problems.throw_if_any("the state is rejected");
  ensure(weights, pool);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const uint32_t constant = model_.state()[i];
    copy_given(*given.tensors[i], *wanted[i].dtype, data(constant), records[constant].stride.data(),
               size_of(records[constant]));
  }
}

}  // namespace aotpack::runtime
