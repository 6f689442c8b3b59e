// The state of a context in `.safetensors` files.
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>

#include "base/bools.h"
#include "base/status.h"
#include "base/strided.h"
#include "call/given.h"
#include "call/state.h"
#include "safetensors/writer.h"

namespace aotpack::runtime {
namespace {

// Row-major strides of a constant; false where its bytes overflow.
bool row_major(const ConstantRecord& record, int64_t* strides, size_t* bytes) noexcept {
  const auto rank = static_cast<int32_t>(record.shape.size());
  uint32_t order[AOTPACK_MAX_RANK];
  std::iota(order, order + rank, 0u);
  return dense_strides(record.shape.data(), order, rank, record.dtype->size, strides, bytes);
}

bool is_row_major(const ConstantRecord& record) noexcept {
  int64_t strides[AOTPACK_MAX_RANK];
  size_t bytes = 0;
  return row_major(record, strides, &bytes) &&
         same_layout(record.shape.data(), strides, record.stride.data(), static_cast<int32_t>(record.shape.size()));
}

// Memory of the host for one tensor at a time.
class Staging {
 public:
  explicit Staging(const Workspace& workspace) noexcept : workspace_(workspace) {}
  // Frees what it returned before.
  void* room(size_t bytes, const ConstantRecord& record) {
    block_.reset();
    block_.reset(workspace_.host_allocator()->allocate(bytes));
    if (block_ == nullptr) no_state_memory(bytes, record);
    return block_.get();
  }

 private:
  struct Release {
    void operator()(void* block) const noexcept { Allocator::release_block(block); }
  };
  const Workspace& workspace_;
  std::unique_ptr<void, Release> block_;
};

struct DeleteTensor {
  void operator()(DLManagedTensorVersioned* tensor) const noexcept { tensor->deleter(tensor); }
};

}  // namespace

void State::save_file(const std::string& path, const Metadata& metadata, const WeightSet& weights,
                      const Workspace& workspace) const {
  const std::vector<ConstantRecord>& records = model_.archive().manifest().constants;
  std::vector<TensorToStore> tensors;
  for (const uint32_t constant : model_.state()) {
    tensors.push_back({&records[constant].name, records[constant].dtype, &records[constant].shape});
  }
  workspace.stream().wait();
  Staging staging(workspace);
  std::unique_ptr<DLManagedTensorVersioned, DeleteTensor> copy;
  write_safetensors(path, tensors, metadata, [&](size_t index) -> const void* {
    const uint32_t constant = model_.state()[index];
    const ConstantRecord& record = records[constant];
    const bool on_host = workspace.is_host() || model_.is_on_host(constant);
    if (on_host && is_row_major(record)) return value_of(constant, weights);
    copy.reset();
    copy.reset(get(index, weights, workspace));
    if (on_host) return copy->dl_tensor.data;
    int64_t strides[AOTPACK_MAX_RANK];
    size_t bytes = 0;
    if (!row_major(record, strides, &bytes)) no_state_memory(bytes, record);
    void* host = staging.room(bytes, record);
    workspace.stream().copy(host, copy->dl_tensor.data, bytes);
    workspace.stream().wait();
    return host;
  });
}

const StoredTensor* State::find_stored(const SafetensorsReader& file, uint32_t constant, uint64_t flags,
                                       Problems* problems) const {
  const ConstantRecord& record = model_.archive().manifest().constants[constant];
  const auto found = file.tensors().find(record.name);
  if (found == file.tensors().end()) {
    if ((flags & AOTPACK_STATE_ALLOW_MISSING) == 0) problems->add("'" + record.name + "' is missing");
    return nullptr;
  }
  const StoredTensor& stored = found->second;
  if (stored.dtype == record.dtype && stored.shape == record.shape) return &stored;
  problems->add("'" + record.name + "': expected " + record.dtype->name + " " +
                shape_text(record.shape.data(), record.shape.size()) + ", got " + stored.dtype->name + " " +
                shape_text(stored.shape.data(), stored.shape.size()));
  return nullptr;
}

void State::read_stored(const SafetensorsReader& file, const StoredTensor& stored, uint32_t constant,
                        const Workspace& workspace) {
  const ConstantRecord& record = model_.archive().manifest().constants[constant];
  const bool on_host = workspace.is_host() || model_.is_on_host(constant);
  const size_t extent = extent_bytes(record);
  Staging laid_out(workspace);
  void* destination = on_host ? data(constant) : laid_out.room(extent, record);
  if (is_row_major(record)) {
    file.read(stored, destination);
  } else {
    int64_t strides[AOTPACK_MAX_RANK];
    size_t bytes = 0;
    if (!row_major(record, strides, &bytes)) no_state_memory(bytes, record);
    Staging as_stored(workspace);
    void* source = as_stored.room(bytes, record);
    file.read(stored, source);
    std::memset(destination, 0, extent);  // gaps, if the layout has any
    strided_copy(destination, record.stride.data(), source, strides, record.shape.data(),
                 static_cast<int32_t>(record.shape.size()), record.dtype->size);
  }
  if (record.dtype->is_bool()) make_bools(destination, extent);
  if (on_host) return;
  workspace.stream().copy(data(constant), destination, extent);
  workspace.stream().wait();  // the memory of the host goes
}

void State::load_file(const SafetensorsReader& file, uint64_t flags, const WeightSet& weights,
                      const Workspace& workspace) {
  const std::vector<ConstantRecord>& records = model_.archive().manifest().constants;
  Problems problems;
  std::vector<const StoredTensor*> stored;
  size_t known = 0;
  for (const uint32_t constant : model_.state()) {
    stored.push_back(find_stored(file, constant, flags, &problems));
    known += file.tensors().count(records[constant].name);
  }
  if ((flags & AOTPACK_STATE_ALLOW_UNEXPECTED) == 0 && known < file.tensors().size()) {
    std::set<std::string_view> names;
    for (const uint32_t constant : model_.state()) names.insert(records[constant].name);
    for (const auto& [name, tensor] : file.tensors()) {
      if (names.count(name) == 0) problems.add("there is no '" + name + "'");
    }
  }
  problems.throw_if_any((file.path() + ": the state is rejected").c_str());

  workspace.stream().wait();
  State incoming(model_);
  incoming.copies_.resize(records.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    const uint32_t constant = model_.state()[i];
    if (stored[i] == nullptr && is_initial()) {
      incoming.make(constant, weights, workspace);
      continue;
    }
    incoming.make_room(constant, workspace);
    if (stored[i] != nullptr) {
      incoming.read_stored(file, *stored[i], constant, workspace);
    } else if (model_.is_on_host(constant)) {
      std::memcpy(incoming.data(constant), data(constant), extent_bytes(records[constant]));
    } else {
      workspace.stream().copy(incoming.data(constant), data(constant), extent_bytes(records[constant]));
    }
  }
  workspace.stream().wait();
  if (is_shared()) {
    copy_from(incoming, workspace);
  } else {
    swap(incoming);
  }
}

}  // namespace aotpack::runtime
