#include "call/state.h"

#include <cstring>
#include <memory>
#include <numeric>

#include "base/dltensor.h"
#include "base/status.h"
#include "base/strided.h"
#include "call/fill.h"
#include "call/given.h"
#include "call/tensor.h"

namespace aotpack::runtime {
namespace {

size_t room_for(const ConstantRecord& record) noexcept {
  return (extent_bytes(record) + AOTPACK_ALIGNMENT - 1) / AOTPACK_ALIGNMENT * AOTPACK_ALIGNMENT;
}

}  // namespace

void no_state_memory(size_t bytes, const ConstantRecord& record) {
  fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes for this context's copy of '%s'", bytes, record.name.c_str());
}

void State::ensure(const WeightSet& weights, const Workspace& workspace) {
  if (!copies_.empty()) return;
  copies_.resize(model_.archive().manifest().constants.size());
  ++version_;
  try {
    for (const uint32_t constant : model_.state()) make(constant, weights, workspace);
  } catch (...) {
    reset();
    throw;
  }
}

void State::make(uint32_t constant, const WeightSet& weights, const Workspace& workspace) {
  const Archive& archive = model_.archive();
  Copy& copy = copies_[constant];
  // Only the archive's own value can be mapped; that of an update is in memory.
  if (workspace.is_host() && weights.data(constant) == archive.constant(constant)) {
    copy.map = archive.copy_on_write(constant);
  }
  copy.data = copy.map.data();
  if (copy.data != nullptr) return;
  make_room(constant, workspace);
  fill(constant, weights, workspace);
}

void State::settle(const WeightSet& weights, const Workspace& workspace, int32_t threads) {
  const Archive& archive = model_.archive();
  const bool initial = copies_.empty();
  ensure(weights, workspace);
  workspace.allocator()->use_huge_pages();
  std::vector<uint32_t> mapped;
  size_t total = 0;
  for (const uint32_t constant : model_.state()) {
    if (copies_[constant].map.data() == nullptr || !archive.manifest().constants[constant].trained) continue;
    mapped.push_back(constant);
    total += room_for(archive.manifest().constants[constant]);
  }
  if (!mapped.empty()) {
    Mapping memory = map_zeros(total);
    if (memory.data() == nullptr) no_state_memory(total, archive.manifest().constants[mapped.front()]);
    std::vector<CopyOfRange> transfers;
    uint8_t* next = memory.data();
    for (const uint32_t constant : mapped) {
      const ConstantRecord& record = archive.manifest().constants[constant];
      // Tensors that share bytes of the file share those that are mapped once for the model.
      const void* from = initial ? archive.constant(constant) : copies_[constant].data;
      transfers.push_back({static_cast<const uint8_t*>(from), next, extent_bytes(record)});
      next += room_for(record);
    }
    fill_zeros(transfers, threads);
    for (size_t i = 0; i < mapped.size(); ++i) {
      copies_[mapped[i]].data = transfers[i].to;
      copies_[mapped[i]].map = Mapping();
    }
    trained_ = std::move(memory);
    ++version_;
  }
  settled_ = true;
}

void State::fill(uint32_t constant, const WeightSet& weights, const Workspace& workspace) {
  const size_t bytes = extent_bytes(model_.archive().manifest().constants[constant]);
  if (model_.is_on_host(constant)) {
    std::memcpy(data(constant), weights.host_data(constant), bytes);
  } else {
    workspace.stream().copy(data(constant), weights.data(constant), bytes);
  }
}

void State::restore(const WeightSet& weights, const Workspace& workspace) {
  for (const uint32_t constant : model_.state()) fill(constant, weights, workspace);
  workspace.stream().wait();
}

void State::copy_from(const State& other, const Workspace& workspace) {
  for (const uint32_t constant : model_.state()) {
    const size_t bytes = extent_bytes(model_.archive().manifest().constants[constant]);
    if (model_.is_on_host(constant)) {
      std::memcpy(data(constant), other.data(constant), bytes);
    } else {
      workspace.stream().copy_on_device(data(constant), other.data(constant), bytes);
    }
  }
  workspace.stream().wait();
}

void State::make_room(uint32_t constant, const Workspace& workspace) {
  const ConstantRecord& record = model_.archive().manifest().constants[constant];
  Copy& copy = copies_[constant];
  // No more: an update has no more, and a module reads no more.
  const size_t bytes = extent_bytes(record);
  copy.block = workspace.allocator_of(model_.is_on_host(constant))->allocate(bytes);
  if (copy.block == nullptr) no_state_memory(bytes, record);
  copy.data = Allocator::data(copy.block);
}

const void* State::value_of(uint32_t constant, const WeightSet& weights) const noexcept {
  if (!copies_.empty()) return data(constant);
  return model_.is_on_host(constant) ? weights.host_data(constant) : weights.data(constant);
}

void State::reset() noexcept {
  for (Copy& copy : copies_) {
    if (copy.block != nullptr) Allocator::release_block(copy.block);
  }
  copies_.clear();
  trained_ = Mapping();
  settled_ = false;
  shared_ = false;
  ++version_;
}

DLManagedTensorVersioned* State::share(size_t index, const WeightSet& weights, const Workspace& workspace) {
  ensure(weights, workspace);
  const uint32_t constant = model_.state()[index];
  const ConstantRecord& record = model_.archive().manifest().constants[constant];
  Copy& copy = copies_[constant];
  if (copy.block == nullptr) {
    // Blocks can be kept beyond the context, pages of the file cannot.
    Copy mapped;
    std::swap(mapped, copy);
    try {
      make_room(constant, workspace);
    } catch (...) {
      std::swap(mapped, copy);
      throw;
    }
    std::memcpy(copy.data, mapped.data, extent_bytes(record));
    ++version_;
  }
  DLManagedTensorVersioned* tensor =
      make_tensor(workspace, model_.is_on_host(constant), copy.block, copy.data, *record.dtype,
                  static_cast<int32_t>(record.shape.size()), record.shape.data(), record.stride.data());
  if (tensor == nullptr) no_state_memory(extent_bytes(record), record);
  Allocator::retain_block(copy.block);
  shared_ = true;
  return tensor;
}

DLManagedTensorVersioned* State::get(size_t index, const WeightSet& weights, const Workspace& workspace) const {
  const uint32_t constant = model_.state()[index];
  const ConstantRecord& record = model_.archive().manifest().constants[constant];
  const auto rank = static_cast<int32_t>(record.shape.size());
  uint32_t order[AOTPACK_MAX_RANK];
  std::iota(order, order + rank, 0u);
  int64_t strides[AOTPACK_MAX_RANK];
  size_t bytes = 0;
  void* block = nullptr;
  const bool on_host = model_.is_on_host(constant);
  if (dense_strides(record.shape.data(), order, rank, record.dtype->size, strides, &bytes)) {
    block = workspace.allocator_of(on_host)->allocate(bytes);
  }
  if (block == nullptr) no_state_memory(bytes, record);
  const void* value = value_of(constant, weights);
  void* copy = Allocator::data(block);
  DLManagedTensorVersioned* tensor =
      make_tensor(workspace, on_host, block, copy, *record.dtype, rank, record.shape.data(), strides);
  if (tensor == nullptr) {
    Allocator::release_block(block);
    no_state_memory(bytes, record);
  }
  try {
    workspace.stream().copy_strided(copy, strides, value, record.stride.data(), record.shape.data(), rank,
                                    record.dtype->size);
    workspace.stream().wait();
  } catch (...) {
    tensor->deleter(tensor);
    throw;
  }
  return tensor;
}

void State::copy_from_device(const DLTensor& given, uint32_t constant, const Workspace& workspace) {
  const ConstantRecord& record = model_.archive().manifest().constants[constant];
  int64_t compact[AOTPACK_MAX_RANK];
  const int64_t* strides = nullptr;
  if (!strides_of(given, compact, &strides)) return;  // match_given has seen to it
  workspace.stream().copy_strided(data(constant), record.stride.data(), data_of(given), strides, record.shape.data(),
                                  given.ndim, record.dtype->size);
  workspace.stream().wait();
}

void State::load(const char* const* names, const DLTensor* const* tensors, size_t count, const WeightSet& weights,
                 const Workspace& workspace) {
  const std::vector<ConstantRecord>& records = model_.archive().manifest().constants;
  std::vector<WantedTensor> wanted;
  for (const uint32_t constant : model_.state()) {
    const DLDevice device = model_.is_on_host(constant) ? DLDevice{kDLCPU, 0} : workspace.device_id();
    wanted.push_back({&records[constant].name, records[constant].dtype, &records[constant].shape, device});
  }
  Problems problems;
  const GivenTensors given = match_given(wanted, names, tensors, count, &problems);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!given.named[i]) problems.add("'" + *wanted[i].name + "' is missing");
  }
  problems.throw_if_any("the state is rejected");
  // Before anything changes: what is on the host, on its way to another device.
  const auto is_staged = [&](size_t i) {
    return is_on_host(given.tensors[i]->device) && !is_on_host(wanted[i].device);
  };
  size_t largest = 0;
  const ConstantRecord* of_largest = nullptr;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const ConstantRecord& record = records[model_.state()[i]];
    if (!is_staged(i) || extent_bytes(record) < largest) continue;
    largest = extent_bytes(record);
    of_largest = &record;
  }
  const std::unique_ptr<void, void (*)(void*)> staging(
      of_largest != nullptr ? workspace.host_allocator()->allocate(largest) : nullptr,
      [](void* block) { Allocator::release_block(block); });
  if (of_largest != nullptr && staging == nullptr) no_state_memory(largest, *of_largest);
  ensure(weights, workspace);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const uint32_t constant = model_.state()[i];
    const size_t bytes = extent_bytes(records[constant]);
    if (!is_on_host(given.tensors[i]->device)) {
      copy_from_device(*given.tensors[i], constant, workspace);
      continue;
    }
    void* destination = is_staged(i) ? staging.get() : data(constant);
    copy_given(*given.tensors[i], *wanted[i].dtype, destination, records[constant].stride.data(), bytes);
    if (!is_staged(i)) continue;
    workspace.stream().copy(data(constant), destination, bytes);
    workspace.stream().wait();
  }
}

}  // namespace aotpack::runtime
