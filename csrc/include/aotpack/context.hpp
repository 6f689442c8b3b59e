// Part of aotpack.hpp: calls of a model, its state, and forwards with their backwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aotpack/aotpack.h"
#include "aotpack/model.hpp"
#include "aotpack/tensors.hpp"

namespace aotpack {

namespace detail {

inline void check_written(const Model& model, const std::vector<TensorView>& inputs, size_t entry) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].is_mutable()) continue;
    const aotpack_value_info* info = aotpack_model_input(model.handle(), entry, i);
    if (info == nullptr || !info->mutated) continue;
    throw Error(AOTPACK_INVALID_ARGUMENT,
                std::string("input '") + info->name + "' is written to by the model: it must be a MutableTensorView");
  }
}

}  // namespace detail

// What a forward has kept for its backward; see aotpack_saved. Movable; valid after its context, but of no use then.
class Saved {
 public:
  explicit Saved(aotpack_saved* handle) noexcept : handle_(handle) {}
  // The size of the kept tensors in bytes.
  size_t nbytes() const noexcept { return aotpack_saved_nbytes(handle_.get()); }
  const aotpack_saved* handle() const noexcept { return handle_.get(); }

 private:
  struct Release {
    void operator()(aotpack_saved* handle) const noexcept { aotpack_saved_release(handle); }
  };
  std::unique_ptr<aotpack_saved, Release> handle_;
};

// The per-thread state for calls of a model. Movable.
class Context {
 public:
  // `num_threads` per call; 0: one per core available to this process. `cpus`: those that calls run on; empty: those of
  // the thread that calls.
  explicit Context(const Model& model, int32_t num_threads = 0, const std::vector<int32_t>& cpus = {}) : model_(model) {
    aotpack_context_options options{};
    options.struct_size = sizeof options;
    options.num_threads = num_threads;
    options.cpus = cpus.data();
    options.cpu_count = cpus.size();
    aotpack_context* handle = nullptr;
    detail::check(aotpack_context_create(model.handle(), &options, &handle));
    handle_.reset(handle);
  }

  const Model& model() const noexcept { return model_; }
  int32_t num_threads() const noexcept { return aotpack_context_num_threads(handle_.get()); }
  void set_num_threads(int32_t count) { detail::check(aotpack_context_set_num_threads(handle_.get(), count)); }
  void set_seed(uint64_t seed) noexcept { aotpack_context_set_seed(handle_.get(), seed); }

  // The stream of the model's device that calls use; nullptr: one of the context's own, the only choice on the CPU.
  // The caller keeps the stream alive. Throws INVALID_ARGUMENT.
  void set_stream(void* stream) { detail::check(aotpack_context_set_stream(handle_.get(), stream)); }
  void* stream() const noexcept { return aotpack_context_stream(handle_.get()); }
  // Returns when the work of all calls has ended; on the CPU it has ended when a call returns.
  void synchronize() { detail::check(aotpack_context_synchronize(handle_.get())); }

  // Whether calls record when they, their steps and kernels begin and end; then the events of the last call.
  void set_profiling(bool enabled) { detail::check(aotpack_context_set_profiling(handle_.get(), enabled)); }
  std::vector<aotpack_profile_event> profile() const {
    std::vector<aotpack_profile_event> events;
    for (size_t i = 0; i < aotpack_context_profile_count(handle_.get()); ++i) {
      events.push_back(*aotpack_context_profile_event(handle_.get(), i));
    }
    return events;
  }

  // A row-major copy of a tensor on the model's device, complete when it returns.
  Tensor to_device(const TensorView& view) {
    const DLTensor from = view.dl();
    DLManagedTensorVersioned* tensor = nullptr;
    detail::check(aotpack_context_to_device(handle_.get(), &from, &tensor));
    return Tensor(tensor);
  }

  // Runs an entry (default: the first) and returns new tensors. Inputs that the model writes to must be
  // MutableTensorViews; otherwise INVALID_ARGUMENT.
  std::vector<Tensor> run(const std::vector<TensorView>& inputs, size_t entry = 0) {
    detail::check_written(model_, inputs, entry);
    const detail::Pointers given(inputs);
    std::vector<DLManagedTensorVersioned*> raw(model_.output_count(entry));
    // Created before the call, so that nothing can fail between the call and the transfer of ownership.
    std::vector<Tensor> outputs(raw.size());
    detail::check(aotpack_context_run(handle_.get(), entry, given.data(), given.size(), raw.data(), raw.size()));
    for (size_t i = 0; i < raw.size(); ++i) outputs[i] = Tensor(raw[i]);
    return outputs;
  }
  std::vector<Tensor> run(const std::vector<TensorView>& inputs, const std::string& entry) {
    return run(inputs, model_.find_entry(entry));
  }

  // The same, into buffers of the results' dtypes and sizes.
  void run_into(const std::vector<TensorView>& inputs, const std::vector<MutableTensorView>& outputs,
                size_t entry = 0) {
    detail::check_written(model_, inputs, entry);
    const detail::Pointers given(inputs);
    const detail::Pointers results(outputs);
    detail::check(
        aotpack_context_run_into(handle_.get(), entry, given.data(), given.size(), results.data(), results.size()));
  }

  // Runs an entry that has a backward and keeps what that reads. Memory of inputs is used again by backward(): it must
  // exist until then, and neither inputs nor outputs may change. Throws INVALID_ARGUMENT for an entry without a
  // backward.
  std::pair<std::vector<Tensor>, Saved> forward(const std::vector<TensorView>& inputs, size_t entry = 0) {
    detail::check_written(model_, inputs, entry);
    const aotpack_backward_info* info = aotpack_model_backward(model_.handle(), entry);
    const detail::Pointers given(inputs);
    std::vector<DLManagedTensorVersioned*> raw(info != nullptr ? info->result_count : 0);
    std::vector<Tensor> outputs(raw.size());
    aotpack_saved* saved = nullptr;
    detail::check(
        aotpack_context_forward(handle_.get(), entry, given.data(), given.size(), raw.data(), raw.size(), &saved));
    for (size_t i = 0; i < raw.size(); ++i) outputs[i] = Tensor(raw[i]);
    return {std::move(outputs), Saved(saved)};
  }
  std::pair<std::vector<Tensor>, Saved> forward(const std::vector<TensorView>& inputs, const std::string& entry) {
    return forward(inputs, model_.find_entry(entry));
  }
  // The outputs of the backward of `entry`, whose forward returned `saved`: gradients. `gradients` are those of the
  // outputs that have any, in order; none for zeros. Throws INVALID_ARGUMENT for a handle of another context, and if
  // the state or the weights were replaced after the forward.
  std::vector<Tensor> backward(const Saved& saved, const std::vector<std::optional<TensorView>>& gradients,
                               size_t entry = 0) {
    const aotpack_backward_info* info = aotpack_model_backward(model_.handle(), entry);
    std::vector<DLTensor> tensors(gradients.size());
    std::vector<const DLTensor*> pointers(gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].has_value()) continue;
      tensors[i] = gradients[i]->dl();
      pointers[i] = &tensors[i];
    }
    std::vector<DLManagedTensorVersioned*> raw(info != nullptr ? model_.output_count(info->entry) : 0);
    std::vector<Tensor> outputs(raw.size());
    detail::check(aotpack_context_backward(handle_.get(), saved.handle(), pointers.data(), pointers.size(), raw.data(),
                                           raw.size()));
    for (size_t i = 0; i < raw.size(); ++i) outputs[i] = Tensor(raw[i]);
    return outputs;
  }
  std::vector<Tensor> backward(const Saved& saved, const std::vector<std::optional<TensorView>>& gradients,
                               const std::string& entry) {
    return backward(saved, gradients, model_.find_entry(entry));
  }

  // The variant that the last call of this entry selected; empty if no call has selected one. Valid as long as the
  // model.
  std::string_view variant(size_t entry = 0) const noexcept {
    const char* name = aotpack_context_variant(handle_.get(), entry);
    return name != nullptr ? std::string_view(name) : std::string_view();
  }
  std::string_view variant(const std::string& entry) const { return variant(model_.find_entry(entry)); }

  // A copy of the state of this context.
  NamedTensors state() {
    NamedTensors state;
    size_t index = 0;
    for (const aotpack_weight_info& info : model_.state()) {
      DLManagedTensorVersioned* tensor = nullptr;
      detail::check(aotpack_context_get_state(handle_.get(), index++, &tensor));
      Tensor owner(tensor);
      state.emplace_back(info.name, std::move(owner));
    }
    return state;
  }
  // Tensors that share the memory of the state, with its strides; see aotpack_context_share_state.
  NamedTensors share_state() {
    NamedTensors state;
    size_t index = 0;
    for (const aotpack_weight_info& info : model_.state()) {
      DLManagedTensorVersioned* tensor = nullptr;
      detail::check(aotpack_context_share_state(handle_.get(), index++, &tensor));
      Tensor owner(tensor);
      state.emplace_back(info.name, std::move(owner));
    }
    return state;
  }
  // Replaces the whole state. If it throws, nothing changes.
  void load_state(const NamedViews& state) {
    const detail::NamedPointers given(state);
    detail::check(aotpack_context_load_state(handle_.get(), given.names(), given.tensors(), given.size()));
  }
  // A `.safetensors` file with the state and the random generator's; see aotpack_context_save_state_file. At any moment
  // the file is the old one or the new one.
  void save_state_file(const std::string& path) {
    detail::check_path(path);
    detail::check(aotpack_context_save_state_file(handle_.get(), path.c_str()));
  }
  // Replaces state and random generator by those of a file. `flags` are AOTPACK_STATE_... If it throws, nothing
  // changes.
  void load_state_file(const std::string& path, uint64_t flags = 0) {
    detail::check_path(path);
    detail::check(aotpack_context_load_state_file(handle_.get(), path.c_str(), flags));
  }
  // Whether calls that fail leave the state as it was, and whether outputs that are not finite fail them; see
  // aotpack_context_set_atomic and aotpack_context_set_check_finite.
  void set_atomic(bool enabled) { detail::check(aotpack_context_set_atomic(handle_.get(), enabled)); }
  void set_check_finite(bool enabled) { detail::check(aotpack_context_set_check_finite(handle_.get(), enabled)); }
  // Restores the initial values.
  void reset() { detail::check(aotpack_context_reset(handle_.get())); }

  aotpack_context* handle() const noexcept { return handle_.get(); }

 private:
  struct Deleter {
    void operator()(aotpack_context* context) const noexcept { aotpack_context_release(context); }
  };

  Model model_;
  std::unique_ptr<aotpack_context, Deleter> handle_;
};

}  // namespace aotpack
