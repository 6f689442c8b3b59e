#include "call/saved.h"

#include <cstring>
#include <utility>

#include "base/dltensor.h"
#include "base/status.h"

namespace aotpack::runtime {

struct Saved::SharedOutput {
  DLManagedTensorVersioned managed{};
  std::shared_ptr<Output> output;

  // Once the output is made.
  static DLManagedTensorVersioned* hand_over(std::unique_ptr<SharedOutput> self) noexcept {
    self->managed = *self->output->tensor;
    self->managed.manager_ctx = self.get();
    self->managed.deleter = [](DLManagedTensorVersioned* managed) {
      delete static_cast<SharedOutput*>(managed->manager_ctx);
    };
    return &self.release()->managed;
  }
};

namespace {

const EntryRecord& record_of(const Context& context, size_t entry) {
  const auto& entries = context.model().entries();
  if (entry >= entries.size()) {
    fail(AOTPACK_INVALID_ARGUMENT, "there is no entry %zu; the model has %zu", entry, entries.size());
  }
  return entries[entry].plan.record();
}

const BackwardRecord& backward_of(const EntryRecord& record) {
  if (!record.backward.has_value()) {
    fail(AOTPACK_INVALID_ARGUMENT, "the entry '%s' has no backward", record.name.c_str());
  }
  return *record.backward;
}

size_t bytes_of(const DLTensor& tensor, size_t item) {
  size_t bytes = item;
  for (int32_t i = 0; i < tensor.ndim; ++i) bytes *= static_cast<size_t>(tensor.shape[i]);
  return bytes;
}

// Zeros of these sizes, in the memory of one. The strides are in `zeros`.
struct Zeros {
  explicit Zeros(const std::vector<int64_t>& sizes, const DType& dtype) : shape(sizes), strides(sizes.size(), 0) {
    tensor.data = const_cast<uint8_t*>(kZero);
    tensor.device = {kDLCPU, 0};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.dtype = dtype.dlpack;
    tensor.shape = shape.data();
    tensor.strides = strides.data();
  }
  alignas(16) static constexpr uint8_t kZero[16] = {};
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
  DLTensor tensor{};
};

void check_count(const char* entry, size_t expected, const char* what, size_t given) {
  if (given != expected) {
    fail(AOTPACK_INVALID_ARGUMENT, "entry '%s' has %zu %s, room was given for %zu", entry, expected, what, given);
  }
}

}  // namespace

std::unique_ptr<Saved> run_forward(Context* context, size_t entry, const DLTensor* const* inputs, size_t num_inputs,
                                   DLManagedTensorVersioned** outputs, size_t num_outputs) {
  const EntryRecord& record = record_of(*context, entry);
  const BackwardRecord& backward = backward_of(record);
  check_count(record.name.c_str(), backward.num_results, "results", num_outputs);
  if (outputs == nullptr && num_outputs > 0) fail(AOTPACK_INVALID_ARGUMENT, "out_outputs is NULL");
  auto saved = std::make_unique<Saved>();
  saved->context_ = context->id();
  saved->entry_ = entry;
  saved->state_generation_ = context->state_generation();
  saved->weight_generation_ = context->model().weight_generation();

  // Owners before the tensors: whatever fails later releases these.
  std::vector<DLManagedTensorVersioned*> raw(record.outputs.size());
  std::vector<std::shared_ptr<Saved::Output>> made;
  for (size_t i = 0; i < raw.size(); ++i) made.push_back(std::make_shared<Saved::Output>());
  std::vector<std::unique_ptr<Saved::SharedOutput>> results;
  for (size_t i = 0; i < num_outputs; ++i) {
    results.push_back(std::make_unique<Saved::SharedOutput>());
    results.back()->output = made[i];
  }
  context->run(entry, inputs, num_inputs, raw.data(), raw.size());
  for (size_t i = 0; i < raw.size(); ++i) made[i]->tensor = raw[i];

  for (const uint32_t index : backward.outputs) {
    saved->outputs_.push_back(made[index]);
    saved->nbytes_ += bytes_of(made[index]->tensor->dl_tensor, record.outputs[index].dtype->size);
  }
  for (const uint32_t index : backward.inputs) {
    const DLTensor& given = *inputs[index];
    auto input = std::make_unique<Saved::Input>();
    const auto rank = static_cast<size_t>(given.ndim);
    std::vector<int64_t>& sizes = input->sizes_and_strides;
    sizes.assign(given.shape, given.shape + rank);
    if (given.strides != nullptr) sizes.insert(sizes.end(), given.strides, given.strides + rank);
    input->tensor = given;
    input->tensor.shape = sizes.data();
    input->tensor.strides = given.strides != nullptr ? sizes.data() + rank : nullptr;
    const ValueRecord& value = record.inputs[index];
    if (value.number != AOTPACK_NUMBER_NONE) {
      std::memcpy(input->number, data_of(given), value.dtype->size);
      input->tensor.data = input->number;
      input->tensor.byte_offset = 0;
    }
    saved->nbytes_ += bytes_of(given, value.dtype->size);
    saved->inputs_.push_back(std::move(input));
  }
  for (const uint32_t index : backward.gradients) {
    const DLTensor& output = made[index]->tensor->dl_tensor;
    saved->gradient_sizes_.emplace_back(output.shape, output.shape + output.ndim);
  }
  for (size_t i = 0; i < num_outputs; ++i) outputs[i] = Saved::SharedOutput::hand_over(std::move(results[i]));
  return saved;
}

void run_backward(Context* context, const Saved& saved, const DLTensor* const* gradients, size_t num_gradients,
                  DLManagedTensorVersioned** outputs, size_t num_outputs) {
  if (saved.context_ != context->id()) {
    fail(AOTPACK_INVALID_ARGUMENT, "the saved tensors belong to another context");
  }
  const EntryRecord& forward = record_of(*context, saved.entry_);
  const BackwardRecord& backward = backward_of(forward);
  if (saved.state_generation_ != context->state_generation() ||
      saved.weight_generation_ != context->model().weight_generation()) {
    fail(AOTPACK_INVALID_ARGUMENT, "%s between the forward and its backward, which would compute with other values",
         saved.state_generation_ != context->state_generation() ? "the state of the context was loaded or reset"
                                                                : "the model's weights were updated");
  }
  if (num_gradients != backward.gradients.size() || (gradients == nullptr && num_gradients > 0)) {
    fail(AOTPACK_INVALID_ARGUMENT, "entry '%s' has %zu outputs with gradients, got %zu gradients", forward.name.c_str(),
         backward.gradients.size(), gradients == nullptr ? 0 : num_gradients);
  }
  std::vector<const DLTensor*> inputs;
  for (const auto& output : saved.outputs_) inputs.push_back(&output->tensor->dl_tensor);
  for (const auto& input : saved.inputs_) inputs.push_back(&input->tensor);
  std::vector<std::unique_ptr<Zeros>> zeros;
  for (size_t i = 0; i < num_gradients; ++i) {
    if (gradients[i] != nullptr) {
      inputs.push_back(gradients[i]);
      continue;
    }
    zeros.push_back(std::make_unique<Zeros>(saved.gradient_sizes_[i], *forward.outputs[backward.gradients[i]].dtype));
    inputs.push_back(&zeros.back()->tensor);
  }
  context->run(backward.entry, inputs.data(), inputs.size(), outputs, num_outputs);
}

}  // namespace aotpack::runtime
