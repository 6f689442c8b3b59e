#include "update/update.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/dltensor.h"
#include "base/status.h"
#include "base/strided.h"
#include "call/context.h"
#include "call/given.h"
#include "update/deltas.h"

namespace aotpack::runtime {
namespace {

class Update {
 public:
  Update(Model* model, const WeightSet& base, const GivenWeights& given)
      : model_(model),
        base_(base),
        given_(given),
        manifest_(model->archive().manifest()),
        weights_(*manifest_.weights),
        source_(manifest_.constants.size()),
        delta_(manifest_.constants.size()) {
    check();
  }

  std::shared_ptr<const WeightSet> make(uint64_t id, int32_t num_threads) {
    for (size_t i = 0; i < manifest_.constants.size(); ++i) values_.push_back(base_.value(i));
    const std::vector<bool> read = constants_of_calls();
    for (size_t i = 0; i < source_.size(); ++i) {
      if (!changes(i)) continue;
      // The fold can read what is not kept where the caller has it, but for a sum.
      if (read[i] || given_.keep_originals || delta_[i].delta != nullptr) {
        copy(i);
      } else {
        values_[i] = {nullptr, nullptr};
      }
    }
    if (fold_reads_changes()) fold(num_threads);
    for (size_t i = 0; i < source_.size() && !given_.keep_originals; ++i) {
      if (changes(i) && !read[i]) values_[i] = {nullptr, nullptr};
    }
    return std::make_shared<const WeightSet>(model_->archive(), model_->entries(), id, std::move(values_));
  }

 private:
  // What is added to a constant, and the tensor of the manifest by whose name.
  struct NamedDelta {
    const WeightRecord* weight = nullptr;
    const aotpack_weight_delta* delta = nullptr;
  };

  void check() {
    std::vector<WantedTensor> wanted;
    for (const WeightRecord& weight : weights_.tensors) wanted.push_back({&weight.name, weight.dtype, &weight.shape});
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
    if (weight.constant == WeightRecord::kNone || base_.data(weight.constant) != nullptr) return;
    problems->add("'" + weight.name + "' is missing: it is needed, and an earlier update did not keep it");
  }

  void check_tied(const GivenTensors& given, Problems* problems) const {
    const auto name_of = [&](const DLTensor* tensor) -> const std::string& {
      const auto at = std::find(given.tensors.begin(), given.tensors.end(), tensor);
      return weights_.tensors[static_cast<size_t>(at - given.tensors.begin())].name;
    };
    for (size_t i = 0; i < given.tensors.size(); ++i) {
      const WeightRecord& weight = weights_.tensors[i];
      if (given.tensors[i] == nullptr || weight.constant == WeightRecord::kNone) continue;
      const DLTensor* first = source_[weight.constant];
      if (given.tensors[i] != first && !same_bytes(*given.tensors[i], *first, weight.dtype->size)) {
        problems->add("'" + name_of(first) + "' and '" + weight.name + "' are one tensor of the model, but differ");
      }
    }
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

  // By constant: whether a call reads it. State is read as the initial value.
  std::vector<bool> constants_of_calls() const {
    std::vector<bool> read(manifest_.constants.size());
    for (size_t i = 0; i < read.size(); ++i) read[i] = manifest_.constants[i].mutated;
    for (const ModelEntry& entry : model_->entries()) {
      for (const Variant& variant : entry.variants) {
        for (const Step& step : variant.steps) {
          for (const uint32_t index : step.module->constants) read[index] = true;
        }
      }
    }
    return read;
  }

  // The new value of a constant, in the constant's layout.
  void copy(size_t constant) {
    const ConstantRecord& record = manifest_.constants[constant];
    uint64_t extent = 0;
    (void)extent_of(record.shape, record.stride, &extent);  // the manifest's reader has checked that it fits
    const auto bytes = static_cast<size_t>(extent * record.dtype->size);
    OwnedMemory memory = allocate_weight(model_->device(), bytes);
    uint64_t elements = 1;
    for (const int64_t size : record.shape) elements *= static_cast<uint64_t>(size);
    if (elements != extent) std::memset(memory.get(), 0, bytes);  // strides may leave gaps
    const DLTensor kept = view(record, base_.data(constant));
    const DLTensor& source = source_[constant] != nullptr ? *source_[constant] : kept;
    if (delta_[constant].delta != nullptr) {
      copy_sum(record, source, delta_[constant], memory.get());
    } else {
      copy_given(source, *record.dtype, memory.get(), record.stride.data(), bytes);
    }
    values_[constant] = {memory.get(), nullptr};
    values_[constant].owner = std::move(memory);
  }

  void copy_sum(const ConstantRecord& record, const DLTensor& source, const NamedDelta& change, void* out) const {
    const auto rank = static_cast<int32_t>(record.shape.size());
    uint32_t order[AOTPACK_MAX_RANK];
    for (uint32_t i = 0; i < AOTPACK_MAX_RANK; ++i) order[i] = i;
    int64_t strides[AOTPACK_MAX_RANK];
    size_t bytes = 0;
    if (!dense_strides(record.shape.data(), order, rank, record.dtype->size, strides, &bytes)) throw std::bad_alloc();
    const OwnedMemory rows = allocate_weight(model_->device(), bytes);
    copy_given(source, *record.dtype, rows.get(), strides, bytes);
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
      const void* data = values_[constant].data;
      if (data != nullptr) views[i] = view(manifest_.constants[constant], data);
      inputs[i] = data != nullptr ? &views[i] : source_[constant];
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
    const ConstantRecord& record = manifest_.constants[constant];
    size_t bytes = record.dtype->size;
    for (const int64_t size : record.shape) bytes *= static_cast<size_t>(size);
    const void* data = data_of(output);
    // Most of a partial update's results depend on nothing that was given.
    if (bytes == 0 || std::memcmp(data, base_.data(constant), bytes) == 0) return;
    if (reinterpret_cast<uintptr_t>(data) % AOTPACK_ALIGNMENT != 0) {
      // Part of a bigger block.
      OwnedMemory memory = allocate_weight(model_->device(), bytes);
      std::memcpy(memory.get(), data, bytes);
      owned = std::move(memory);
      data = owned.get();
    }
    values_[constant] = {data, nullptr};
    values_[constant].owner = std::move(owned);
  }

  static constexpr const char* kRefused = "the update is rejected";

  Model* model_;
  const WeightSet& base_;
  const GivenWeights& given_;
  const Manifest& manifest_;
  const WeightsRecord& weights_;
  std::vector<const DLTensor*> source_;  // by constant: a tensor given for it, or NULL
  std::vector<NamedDelta> delta_;        // by constant
  std::vector<ConstantValue> values_;    // by constant
};

}  // namespace

void update_weights(Model* model, const GivenWeights& given, int32_t num_threads) {
  if (!model->device().is_host()) {
    throw Error(AOTPACK_INVALID_ARGUMENT, model->archive().path() + ": the weights of a model on " +
                                              device_name(model->device().id()) + " cannot be replaced");
  }
  const Model::Base from = given.from_archive ? Model::Base::kArchive : Model::Base::kCurrent;
  model->replace_weights(
      from, [&](const WeightSet& base, uint64_t id) { return Update(model, base, given).make(id, num_threads); });
}

}  // namespace aotpack::runtime
