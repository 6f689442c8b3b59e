#include "update/update.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/bools.h"
#include "base/dltensor.h"
#include "base/status.h"
#include "base/strided.h"
#include "call/context.h"
#include "call/given.h"
#include "update/deltas.h"
#include "update/host_values.h"

namespace aotpack::runtime {
namespace {

class Update {
 public:
  Update(Model* model, const Model::Values& base, const GivenWeights& given)
      : model_(model),
        base_(base),
        near_(*model, base),
        given_(given),
        manifest_(model->archive().manifest()),
        weights_(*manifest_.weights),
        source_(manifest_.constants.size()),
        delta_(manifest_.constants.size()) {
    check();
  }

  // The new values; those that changed are in memory of the host.
  Model::Values make(int32_t num_threads) {
    values_ = base_;
    for (size_t i = 0; i < source_.size(); ++i) {
      if (!changes(i)) continue;
      // The fold can read what is not kept where the caller has it, but for a sum.
      if (is_read(i) || given_.keep_originals || delta_[i].delta != nullptr || !is_on_host(source_[i]->device)) {
        copy(i);
      } else {
        values_[i] = {};
      }
    }
    if (fold_reads_changes()) fold(num_threads);
    for (size_t i = 0; i < source_.size() && !given_.keep_originals; ++i) {
      if (changes(i) && !is_read(i)) values_[i] = {};
    }
    return std::move(values_);
  }

 private:
  // What is added to a constant, and the tensor of the manifest by whose name.
  struct NamedDelta {
    const WeightRecord* weight = nullptr;
    const aotpack_weight_delta* delta = nullptr;
  };

  void check() {
    std::vector<WantedTensor> wanted;
    const DLDevice device = model_->device().id();
    for (const WeightRecord& weight : weights_.tensors) {
      wanted.push_back({&weight.name, weight.dtype, &weight.shape, device});
    }
    Problems problems;
    const GivenTensors given = match_given(wanted, given_.names, given_.tensors, given_.count, &problems);
    const auto deltas = match_deltas(weights_.tensors, given_.deltas, given_.delta_count, &problems);
    std::vector<bool> named(source_.size());  // by constant
    for (size_t i = 0; i < deltas.size(); ++i) {
      const WeightRecord& weight = weights_.tensors[i];
      if (weight.constant == WeightRecord::kNone) continue;
      if (given.named[i]) named[weight.constant] = true;
      if (source_[weight.constant] == nullptr) source_[weight.constant] = given.tensors[i];
      if (deltas[i] != nullptr) delta_[weight.constant] = {&weight, deltas[i]};
    }
    const bool folds = fold_reads_changes();
    for (size_t i = 0; i < deltas.size(); ++i) {
      const WeightRecord& weight = weights_.tensors[i];
      if (given.named[i] || (weight.constant != WeightRecord::kNone && named[weight.constant])) continue;
      if (!given_.partial) {
        problems.add("'" + weight.name + "' is missing");
      } else if (deltas[i] != nullptr || (folds && is_folded(i))) {
        check_is_kept(weight, &problems);
      }
    }
    problems.throw_if_any(kRefused);
    check_tied(given, &problems);
    problems.throw_if_any(kRefused);
  }

  void check_is_kept(const WeightRecord& weight, Problems* problems) const {
    if (weight.constant == WeightRecord::kNone || near_.has(weight.constant)) return;
    problems->add("'" + weight.name + "' is missing: it is needed, and an earlier update did not keep it");
  }

  void check_tied(const GivenTensors& given, Problems* problems) {
    const auto name_of = [&](const DLTensor* tensor) -> const std::string& {
      const auto at = std::find(given.tensors.begin(), given.tensors.end(), tensor);
      return weights_.tensors[static_cast<size_t>(at - given.tensors.begin())].name;
    };
    for (size_t i = 0; i < given.tensors.size(); ++i) {
      const WeightRecord& weight = weights_.tensors[i];
      if (given.tensors[i] == nullptr || weight.constant == WeightRecord::kNone) continue;
      const DLTensor* first = source_[weight.constant];
      if (given.tensors[i] != first && !same(*given.tensors[i], *first, manifest_.constants[weight.constant])) {
        problems->add("'" + name_of(first) + "' and '" + weight.name + "' are one tensor of the model, but differ");
      }
    }
  }

  // Whether two tensors of the shape of a constant hold the same bytes.
  bool same(const DLTensor& a, const DLTensor& b, const ConstantRecord& record) {
    if (is_on_host(a.device) && is_on_host(b.device)) return same_bytes(a, b, record.dtype->size);
    const size_t bytes = extent_bytes(record);
    OwnedMemory copies[2];
    DLTensor views[2];
    for (size_t i = 0; i < 2; ++i) {
      copies[i] = allocate_weight(host_device(), bytes);
      copy_from(i == 0 ? a : b, record, copies[i].get(), record.stride.data(), bytes);
      views[i] = view(record, copies[i].get());
    }
    return same_bytes(views[0], views[1], record.dtype->size);
  }

  bool changes(size_t constant) const { return source_[constant] != nullptr || delta_[constant].delta != nullptr; }

  bool is_folded(size_t tensor) const {
    const std::vector<uint32_t>& inputs = weights_.fold->inputs;
    const uint32_t constant = weights_.tensors[tensor].constant;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](uint32_t input) { return weights_.tensors[input].constant == constant; });
  }

  bool fold_reads_changes() const {
    if (!weights_.fold) return false;
    const std::vector<uint32_t>& inputs = weights_.fold->inputs;
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](uint32_t input) { return changes(weights_.tensors[input].constant); });
  }

  // Whether a call reads a constant. State is read as the initial value.
  bool is_read(size_t constant) const { return model_->reads_on_device(constant) || model_->reads_on_host(constant); }

  void set(size_t constant, const void* data, std::shared_ptr<void> owner) {
    if (model_->device().is_host()) {
      values_[constant] = {data, std::move(owner), nullptr, nullptr};
    } else {
      values_[constant] = {nullptr, nullptr, data, std::move(owner)};
    }
  }

  // The new value of a constant, if it is in memory of the host.
  const void* new_value(size_t constant) const {
    return model_->device().is_host() ? values_[constant].data : values_[constant].host;
  }

  // The new value of a constant, in the constant's layout.
  void copy(size_t constant) {
    const ConstantRecord& record = manifest_.constants[constant];
    const size_t bytes = extent_bytes(record);
    OwnedMemory memory = allocate_weight(host_device(), bytes);
    size_t elements = record.dtype->size;
    for (const int64_t size : record.shape) elements *= static_cast<size_t>(size);
    if (elements != bytes) std::memset(memory.get(), 0, bytes);  // strides may leave gaps
    const DLTensor* given = source_[constant];
    const DLTensor kept = view(record, given == nullptr ? near_.get(constant) : nullptr);
    const DLTensor& source = given != nullptr ? *given : kept;
    if (delta_[constant].delta != nullptr) {
      copy_sum(record, source, delta_[constant], memory.get());
    } else {
      copy_from(source, record, memory.get(), record.stride.data(), bytes);
    }
    const void* data = memory.get();
    set(constant, data, std::move(memory));
  }

  // A tensor on the host or the model's device.
  void copy_from(const DLTensor& source, const ConstantRecord& record, void* to, const int64_t* strides, size_t bytes) {
    if (is_on_host(source.device)) return copy_given(source, *record.dtype, to, strides, bytes);
    near_.download(source, to, strides, record.dtype->size);
    if (record.dtype->is_bool()) make_bools(to, bytes);
  }

  void copy_sum(const ConstantRecord& record, const DLTensor& source, const NamedDelta& change, void* out) {
    const auto rank = static_cast<int32_t>(record.shape.size());
    uint32_t order[AOTPACK_MAX_RANK];
    for (uint32_t i = 0; i < AOTPACK_MAX_RANK; ++i) order[i] = i;
    int64_t strides[AOTPACK_MAX_RANK];
    size_t bytes = 0;
    if (!dense_strides(record.shape.data(), order, rank, record.dtype->size, strides, &bytes)) throw std::bad_alloc();
    const OwnedMemory rows = allocate_weight(host_device(), bytes);
    copy_from(source, record, rows.get(), strides, bytes);
    add_delta(*change.weight, *change.delta, rows.get());
    strided_copy(out, record.stride.data(), rows.get(), strides, record.shape.data(), rank, record.dtype->size);
  }

  static DLTensor view(const ConstantRecord& record, const void* data) {
    DLTensor tensor{};
    tensor.data = const_cast<void*>(data);
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(record.shape.size());
    tensor.dtype = record.dtype->dlpack;
    tensor.shape = const_cast<int64_t*>(record.shape.data());
    tensor.strides = const_cast<int64_t*>(record.stride.data());
    return tensor;
  }

  void fold(int32_t num_threads) {
    const FoldRecord& fold = *weights_.fold;
    std::vector<DLTensor> views(fold.inputs.size());
    std::vector<const DLTensor*> inputs(fold.inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const uint32_t constant = weights_.tensors[fold.inputs[i]].constant;
      // What was copied, if it was: the caller's tensors are read once then.
      const void* data = new_value(constant);
      if (data == nullptr && source_[constant] != nullptr) {
        inputs[i] = source_[constant];
        continue;
      }
      views[i] = view(manifest_.constants[constant], data != nullptr ? data : near_.get(constant));
      inputs[i] = &views[i];
    }
    std::vector<DLManagedTensorVersioned*> outputs(fold.results.size());
    std::vector<OwnedMemory> owned;
    owned.reserve(outputs.size());  // so that nothing fails between the call and the taking over
    Context context(model_, num_threads, Allocator::Keep::kNothing);
    try {
      context.run(fold.entry, inputs.data(), inputs.size(), outputs.data(), outputs.size());
    } catch (const Error& error) {
      throw Error(error.code(), "the new weights cannot be folded: " + error.message());
    }
    for (DLManagedTensorVersioned* output : outputs) {
      owned.push_back(OwnedMemory(output, [](void* tensor) {
        auto* managed = static_cast<DLManagedTensorVersioned*>(tensor);
        managed->deleter(managed);
      }));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      adopt(fold.results[i], outputs[i]->dl_tensor, std::move(owned[i]));
    }
  }

  // The output is dense in the constant's layout: the manifest's reader has seen to that.
  void adopt(uint32_t constant, const DLTensor& output, OwnedMemory owned) {
    // What other targets read.
    if (!is_read(constant)) {
      values_[constant] = {};
      return;
    }
    const ConstantRecord& record = manifest_.constants[constant];
    size_t bytes = record.dtype->size;
    for (const int64_t size : record.shape) bytes *= static_cast<size_t>(size);
    const void* data = data_of(output);
    if (!is_on_host(output.device)) {
      OwnedMemory memory = allocate_weight(host_device(), bytes);
      near_.download(output, memory.get(), record.stride.data(), record.dtype->size);
      owned = std::move(memory);
      data = owned.get();
    }
    // Most of a partial update's results depend on nothing that was given.
    if (bytes == 0 || near_.equals(constant, data)) return;
    if (reinterpret_cast<uintptr_t>(data) % AOTPACK_ALIGNMENT != 0) {
      // Part of a bigger block.
      OwnedMemory memory = allocate_weight(host_device(), bytes);
      std::memcpy(memory.get(), data, bytes);
      owned = std::move(memory);
      data = owned.get();
    }
    set(constant, data, std::move(owned));
  }

  static constexpr const char* kRefused = "the update is rejected";

  Model* model_;
  const Model::Values& base_;
  HostValues near_;  // of the base
  const GivenWeights& given_;
  const Manifest& manifest_;
  const WeightsRecord& weights_;
  std::vector<const DLTensor*> source_;  // by constant: a tensor given for it, or NULL
  std::vector<NamedDelta> delta_;        // by constant
  Model::Values values_;                 // by constant
};

}  // namespace

void update_weights(Model* model, const GivenWeights& given, int32_t num_threads) {
  const Model::Base from = given.from_archive ? Model::Base::kArchive : Model::Base::kCurrent;
  with_memory_of(model->device(), [&] {
    model->replace_weights(from,
                           [&](const Model::Values& base) { return Update(model, base, given).make(num_threads); });
  });
}

}  // namespace aotpack::runtime
