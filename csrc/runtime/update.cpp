#include "update.h"

#include <algorithm>
#include <cstring>

#include "context.h"
#include "dltensor.h"
#include "given.h"
#include "status.h"

namespace aotpack::runtime {
namespace {

class Update {
 public:
  Update(Model* model, const char* const* names, const DLTensor* const* tensors, size_t count)
      : model_(model),
        manifest_(model->archive().manifest()),
        weights_(*manifest_.weights),
        source_(manifest_.constants.size()) {
    check(names, tensors, count);
  }

  std::shared_ptr<const WeightSet> make(uint64_t id, int32_t num_threads) {
    for (size_t i = 0; i < manifest_.constants.size(); ++i) data_.push_back(model_->archive().constant(i));
    find_kept_constants();
    for (size_t i = 0; i < source_.size(); ++i) {
      // What only the fold reads it gets as it was given. State is kept as the initial value.
      kept_[i] = source_[i] != nullptr && (kept_[i] || manifest_.constants[i].mutated);
      if (kept_[i]) copy(i);
    }
    if (weights_.fold) fold(num_threads);
    return std::make_shared<const WeightSet>(model_->archive(), model_->entries(), id, std::move(data_),
                                             std::move(owned_));
  }

 private:
  void check(const char* const* names, const DLTensor* const* tensors, size_t count) {
    std::vector<WantedTensor> wanted;
    for (const WeightRecord& weight : weights_.tensors) wanted.push_back({&weight.name, weight.dtype, &weight.shape});
    Problems problems;
    const GivenTensors given = match_given(wanted, names, tensors, count, &problems);
    given_ = given.tensors;
    std::vector<bool> named(source_.size());  // by constant
    for (size_t i = 0; i < given_.size(); ++i) {
      const uint32_t constant = weights_.tensors[i].constant;
      if (constant == WeightRecord::kNone) continue;
      if (given.named[i]) named[constant] = true;
      if (source_[constant] == nullptr) source_[constant] = given_[i];
    }
    for (size_t i = 0; i < given_.size(); ++i) {
      const WeightRecord& weight = weights_.tensors[i];
      const bool tied = weight.constant != WeightRecord::kNone && named[weight.constant];
      if (!given.named[i] && !tied) problems.add("'" + weight.name + "' is missing");
    }
    problems.throw_if_any(kRefused);
    for (size_t i = 0; i < given_.size(); ++i) {
      const WeightRecord& weight = weights_.tensors[i];
      if (given_[i] == nullptr || weight.constant == WeightRecord::kNone) continue;
      const DLTensor& first = *source_[weight.constant];
      if (given_[i] != &first && !same_bytes(*given_[i], first, weight.dtype->size)) {
        problems.add("'" + name_of_source(weight.constant) + "' and '" + weight.name +
                     "' are one tensor of the model, but differ");
      }
    }
    problems.throw_if_any(kRefused);
  }

  const std::string& name_of_source(uint32_t constant) const {
    const auto at = std::find(given_.begin(), given_.end(), source_[constant]);
    return weights_.tensors[static_cast<size_t>(at - given_.begin())].name;
  }

  void find_kept_constants() {
    kept_.resize(manifest_.constants.size());
    for (const ModelEntry& entry : model_->entries()) {
      for (const Variant& variant : entry.variants) {
        for (const uint32_t index : variant.module_record->constants) kept_[index] = true;
      }
    }
  }

  void copy(size_t constant) {
    const ConstantRecord& record = manifest_.constants[constant];
    uint64_t extent = 0;
    (void)extent_of(record.shape, record.stride, &extent);  // the manifest's reader has checked that it fits
    const auto bytes = static_cast<size_t>(extent * record.dtype->size);
    OwnedMemory memory = allocate_weight(bytes);
    uint64_t elements = 1;
    for (const int64_t size : record.shape) elements *= static_cast<uint64_t>(size);
    if (elements != extent) std::memset(memory.get(), 0, bytes);  // strides may leave gaps
    copy_given(*source_[constant], *record.dtype, memory.get(), record.stride.data(), bytes);
    data_[constant] = memory.get();
    owned_.push_back(std::move(memory));
  }

  // A dense view of a constant that was copied.
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
      if (kept_[constant]) views[i] = view(manifest_.constants[constant], data_[constant]);
      inputs[i] = kept_[constant] ? &views[i] : source_[constant];
    }
    std::vector<DLManagedTensorVersioned*> outputs(fold.results.size());
    owned_.reserve(owned_.size() + outputs.size());  // so that nothing fails between the call and the taking over
    Context context(model_, num_threads, Pool::Keep::kNothing);
    try {
      context.run(fold.entry, inputs.data(), inputs.size(), outputs.data(), outputs.size());
    } catch (const Error& error) {
      throw Error(error.code(), "the new weights cannot be folded: " + error.message());
    }
    for (DLManagedTensorVersioned* output : outputs) {
      owned_.push_back(OwnedMemory(output, [](void* tensor) {
        auto* managed = static_cast<DLManagedTensorVersioned*>(tensor);
        managed->deleter(managed);
      }));
    }
    for (size_t i = 0; i < outputs.size(); ++i) adopt(fold.results[i], outputs[i]->dl_tensor);
  }

  // The output is dense in the constant's layout: the manifest's reader has seen to that.
  void adopt(uint32_t constant, const DLTensor& output) {
    const void* data = data_of(output);
    if (reinterpret_cast<uintptr_t>(data) % AOTPACK_ALIGNMENT == 0) {
      data_[constant] = data;
      return;
    }
    // Part of a bigger block.
    const ConstantRecord& record = manifest_.constants[constant];
    size_t bytes = record.dtype->size;
    for (const int64_t size : record.shape) bytes *= static_cast<size_t>(size);
    OwnedMemory memory = allocate_weight(bytes);
    std::memcpy(memory.get(), data, bytes);
    data_[constant] = memory.get();
    owned_.push_back(std::move(memory));
  }

  static constexpr const char* kRefused = "the update is refused";

  Model* model_;
  const Manifest& manifest_;
  const WeightsRecord& weights_;
  std::vector<const DLTensor*> given_;   // by tensor of the manifest
  std::vector<const DLTensor*> source_;  // by constant: a tensor given for it, or NULL
  std::vector<bool> kept_;               // by constant: whether a call reads it
  std::vector<const void*> data_;        // by constant
  std::vector<OwnedMemory> owned_;
};

}  // namespace

std::shared_ptr<const WeightSet> make_updated_set(Model* model, uint64_t id, const char* const* names,
                                                  const DLTensor* const* tensors, size_t count, int32_t num_threads) {
  return Update(model, names, tensors, count).make(id, num_threads);
}

}  // namespace aotpack::runtime
