// The runtime from C++17, header-only over aotpack.h.
//
//   aotpack::Model model = aotpack::Model::load("digits.aotpack");
//   aotpack::Context context(model);
//   std::vector<float> image(8 * 8);
//   std::vector<aotpack::Tensor> outputs = context.run({aotpack::TensorView(image.data(), {1, 1, 8, 8})});
//   const float* scores = outputs[0].data<float>();
//
// Errors are thrown as aotpack::Error. Threads: any number of threads may use a Model, and one thread at a time a
// Context. A Tensor may outlive both and may be destroyed on any thread.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "aotpack/aotpack.h"

namespace aotpack {

// An error with a code() and a message, what().
class Error : public std::runtime_error {
 public:
  Error(aotpack_code code, const std::string& message)
      : std::runtime_error(std::string(aotpack_code_name(code)) + ": " + message), code_(code) {}
  aotpack_code code() const noexcept { return code_; }

 private:
  aotpack_code code_;
};

namespace detail {

// Throws the status that a C function returned.
inline void check(aotpack_status* status) {
  if (status == nullptr) return;
  const std::unique_ptr<aotpack_status, void (*)(aotpack_status*)> owner(status, aotpack_status_release);
  throw Error(aotpack_status_code(status), aotpack_status_message(status));
}

// A copy of a struct that the library filled, which may know fewer members than this header or more.
template <typename Info>
Info copy_info(const Info* info) noexcept {
  Info copy{};
  std::memcpy(&copy, info, std::min(info->struct_size, sizeof copy));
  copy.struct_size = std::min(info->struct_size, sizeof copy);
  return copy;
}

}  // namespace detail

inline bool same_device(DLDevice a, DLDevice b) noexcept {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

// The DLPack type of a C++ type; undefined for other types. float16, bfloat16 and float8 have no C++17 type; use
// kFloat16 and the other constants.
template <typename T>
constexpr DLDataType dtype_of() {
  constexpr uint8_t bits = static_cast<uint8_t>(8 * sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    return DLDataType{kDLBool, bits, 1};
  } else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return DLDataType{kDLComplex, bits, 1};
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return DLDataType{kDLFloat, bits, 1};
  } else {
    static_assert(std::is_integral_v<T>, "not an element type");
    return DLDataType{std::is_signed_v<T> ? kDLInt : kDLUInt, bits, 1};
  }
}
inline constexpr DLDataType kFloat16{kDLFloat, 16, 1};
inline constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};
// By number: if the program uses a dlpack.h older than DLPack 1.1, it has no names for these.
inline constexpr DLDataType kFloat8E4M3FN{10, 8, 1};
inline constexpr DLDataType kFloat8E4M3FNUZ{11, 8, 1};
inline constexpr DLDataType kFloat8E5M2{12, 8, 1};
inline constexpr DLDataType kFloat8E5M2FNUZ{13, 8, 1};

inline bool same_dtype(DLDataType a, DLDataType b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

using Shape = std::vector<int64_t>;

// A non-owning view of memory that is only read, as a tensor: an input. Cheap to copy; the data must outlive it.
class TensorView {
 public:
  // `data` points to element (0, ..., 0); `strides` count elements, empty for contiguous; `device` is where the data
  // are.
  template <typename T>
  TensorView(const T* data, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : TensorView(data, dtype_of<T>(), std::move(shape), std::move(strides), device) {}
  TensorView(const void* data, DLDataType dtype, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : data_(data), dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)), device_(device) {
    if (!strides_.empty() && strides_.size() != shape_.size()) {
      throw Error(AOTPACK_INVALID_ARGUMENT, "shape and strides differ in length");
    }
  }

  // Whether this was made as a MutableTensorView.
  bool is_mutable() const noexcept { return is_mutable_; }

  // Valid as long as this view is neither changed nor destroyed. DLPack has no type for memory that is only read:
  // where is_mutable() is false, `data` must not be written to.
  DLTensor dl() const noexcept {
    DLTensor tensor{};
    tensor.data = const_cast<void*>(data_);
    tensor.device = device_;
    tensor.ndim = static_cast<int32_t>(shape_.size());
    tensor.dtype = dtype_;
    tensor.shape = const_cast<int64_t*>(shape_.data());
    tensor.strides = strides_.empty() ? nullptr : const_cast<int64_t*>(strides_.data());
    return tensor;
  }

 private:
  friend class MutableTensorView;
  const void* data_;
  DLDataType dtype_;
  Shape shape_;
  Shape strides_;
  DLDevice device_;
  bool is_mutable_ = false;
};

// The same for memory that is written to: a buffer for an output, or an input that the model writes to.
class MutableTensorView : public TensorView {
 public:
  template <typename T, typename = std::enable_if_t<!std::is_const_v<T>>>
  MutableTensorView(T* data, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : MutableTensorView(data, dtype_of<T>(), std::move(shape), std::move(strides), device) {}
  MutableTensorView(void* data, DLDataType dtype, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : TensorView(data, dtype, std::move(shape), std::move(strides), device) {
    is_mutable_ = true;
  }
};

// A result. Owns its memory; movable.
class Tensor {
 public:
  Tensor() noexcept = default;
  // Takes ownership.
  explicit Tensor(DLManagedTensorVersioned* managed) noexcept : managed_(managed) {}

  const DLTensor& dl() const noexcept { return managed_->dl_tensor; }
  DLDataType dtype() const noexcept { return dl().dtype; }
  DLDevice device() const noexcept { return dl().device; }
  size_t rank() const noexcept { return static_cast<size_t>(dl().ndim); }
  int64_t size(size_t dim) const noexcept { return dl().shape[dim]; }
  int64_t stride(size_t dim) const noexcept { return dl().strides[dim]; }
  Shape shape() const { return Shape(dl().shape, dl().shape + dl().ndim); }
  Shape strides() const { return Shape(dl().strides, dl().strides + dl().ndim); }
  int64_t numel() const noexcept {
    int64_t count = 1;
    for (size_t i = 0; i < rank(); ++i) count *= size(i);
    return count;
  }

  // Element (0, ..., 0). Throws unless T is the tensor's element type.
  template <typename T>
  T* data() const {
    if (!same_dtype(dtype(), dtype_of<std::remove_const_t<T>>())) {
      throw Error(AOTPACK_INVALID_ARGUMENT, "data<T>(): T is not the tensor's element type");
    }
    return static_cast<T*>(raw_data());
  }
  // The only element, e.g. of a scalar. Throws unless there is exactly one element of type T, in memory of the host.
  template <typename T>
  T item() const {
    if (numel() != 1) throw Error(AOTPACK_INVALID_ARGUMENT, "item<T>(): the tensor has not exactly one element");
    if (device().device_type != kDLCPU) throw Error(AOTPACK_INVALID_ARGUMENT, "item<T>(): the tensor is on a device");
    return *data<const T>();
  }
  void* raw_data() const noexcept { return static_cast<char*>(dl().data) + dl().byte_offset; }

  MutableTensorView view() const { return MutableTensorView(raw_data(), dtype(), shape(), strides(), device()); }

  // Transfers ownership of the DLPack object, e.g. to another library.
  DLManagedTensorVersioned* release() noexcept { return managed_.release(); }
  explicit operator bool() const noexcept { return managed_ != nullptr; }

 private:
  struct Deleter {
    void operator()(DLManagedTensorVersioned* managed) const noexcept { managed->deleter(managed); }
  };
  std::unique_ptr<DLManagedTensorVersioned, Deleter> managed_;
};

// Tensors by name: weights, or a state.
using NamedViews = std::vector<std::pair<std::string, TensorView>>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

namespace detail {

// The arrays that the C functions accept.
class NamedPointers {
 public:
  explicit NamedPointers(const NamedViews& given) {
    tensors_.reserve(given.size());
    for (const auto& [name, view] : given) {
      names_.push_back(name.c_str());
      pointers_.push_back(&tensors_.emplace_back(view.dl()));
    }
  }
  const char* const* names() const noexcept { return names_.data(); }
  const DLTensor* const* tensors() const noexcept { return pointers_.data(); }
  size_t size() const noexcept { return names_.size(); }

 private:
  std::vector<const char*> names_;
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
};

}  // namespace detail

namespace detail {

// A C string ends at the first null character.
inline void check_path(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    throw Error(AOTPACK_INVALID_ARGUMENT, "the path holds a zero character");
  }
}

}  // namespace detail

enum class Verify { kCode = AOTPACK_VERIFY_CODE, kFull = AOTPACK_VERIFY_FULL };
enum class Load { kDefault = AOTPACK_LOAD_DEFAULT, kMap = AOTPACK_LOAD_MAP, kCopy = AOTPACK_LOAD_COPY };

// How Model::load loads; see aotpack_load_options.
struct LoadOptions {
  Verify verify = Verify::kCode;
  Load mode = Load::kDefault;
  DLDevice device = {kDLCPU, 0};   // where the model runs
  std::optional<int> graphs;       // CUDA graphs that each context keeps at most; 0: none; default: 8
  std::string provider_path = {};  // folders with libraries such as cuFFT, separated by ':'
};

// A low-rank update of a weight: adds scale * up * down. `down` is [rank, in...], `up` is [out, rank].
struct WeightDelta {
  std::string name;
  TensorView down;
  TensorView up;
  double scale = 1;
};

// How Model::update_weights changes the weights; see the flags of aotpack_update_options.
struct UpdateOptions {
  int32_t num_threads = 1;
  bool partial = false;        // weights that are not given keep their values
  bool from_archive = false;   // they have the archive's values instead of those of the last update
  bool keep_originals = true;  // false: less memory, but a later partial update may have to give more weights
  std::vector<WeightDelta> deltas = {};
};

// A loaded archive. Copies share it.
class Model {
 public:
  // Throws INVALID_ARGUMENT for a path with a null character.
  static Model load(const std::string& path, const LoadOptions& how = {}) {
    detail::check_path(path);
    aotpack_load_options options{};
    options.struct_size = sizeof options;
    options.verify = static_cast<aotpack_verify>(how.verify);
    options.mode = static_cast<aotpack_load_mode>(how.mode);
    options.device = how.device;
    if (how.graphs) options.graphs = *how.graphs == 0 ? -1 : *how.graphs;
    options.provider_path = how.provider_path.c_str();
    aotpack_model* handle = nullptr;
    detail::check(aotpack_model_load(path.c_str(), &options, &handle));
    return Model(handle);
  }
  static Model load(const std::string& path, Verify verify, Load mode = Load::kDefault) {
    LoadOptions options;
    options.verify = verify;
    options.mode = mode;
    return load(path, options);
  }

  Model(const Model& other) noexcept : handle_(other.handle_) { aotpack_model_retain(handle_); }
  Model(Model&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Model& operator=(Model other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Model() { aotpack_model_release(handle_); }

  // The manifest, JSON (docs/format.md). Views are valid as long as a copy of the model exists.
  std::string_view manifest() const noexcept {
    size_t length = 0;
    const char* text = aotpack_model_manifest(handle_, &length);
    return {text, length};
  }
  // Where the model runs.
  DLDevice device() const noexcept { return aotpack_model_device(handle_); }
  size_t entry_count() const noexcept { return aotpack_model_entry_count(handle_); }
  std::string_view entry_name(size_t entry) const { return text(aotpack_model_entry_name(handle_, entry)); }
  std::string_view entry_target(size_t entry) const { return text(aotpack_model_entry_target(handle_, entry)); }
  size_t find_entry(const std::string& name) const {
    size_t entry = 0;
    detail::check(aotpack_model_find_entry(handle_, name.c_str(), &entry));
    return entry;
  }
  std::string_view variant_target(size_t variant, size_t entry = 0) const {
    return text(aotpack_model_variant_target(handle_, entry, variant));
  }
  // In the order in which a call tries them.
  std::vector<std::string_view> variants(size_t entry = 0) const {
    std::vector<std::string_view> names;
    for (size_t i = 0; i < aotpack_model_variant_count(handle_, entry); ++i) {
      names.emplace_back(aotpack_model_variant_name(handle_, entry, i));
    }
    return names;
  }
  size_t input_count(size_t entry = 0) const noexcept { return aotpack_model_input_count(handle_, entry); }
  size_t output_count(size_t entry = 0) const noexcept { return aotpack_model_output_count(handle_, entry); }
  const aotpack_value_info& input(size_t index, size_t entry = 0) const {
    return info(aotpack_model_input(handle_, entry, index));
  }
  const aotpack_value_info& output(size_t index, size_t entry = 0) const {
    return info(aotpack_model_output(handle_, entry, index));
  }

  bool is_updatable() const noexcept { return aotpack_model_is_updatable(handle_); }
  // The tensors of an update; empty if the archive is frozen.
  std::vector<aotpack_weight_info> weights() const {
    std::vector<aotpack_weight_info> infos;
    for (size_t i = 0; i < aotpack_model_weight_count(handle_); ++i)
      infos.push_back(detail::copy_info(aotpack_model_weight(handle_, i)));
    return infos;
  }
  // Replaces all weights atomically. Other threads may call the model during the update: each call uses either the old
  // weights or the new ones. Throws, and changes nothing, if a tensor is missing, unknown, or has the wrong dtype or
  // shape. `num_threads` threads compute derived weights.
  void update_weights(const NamedViews& weights, int32_t num_threads = 1) {
    UpdateOptions options;
    options.num_threads = num_threads;
    update_weights(weights, options);
  }
  // The same for some of the weights, or with low-rank updates.
  void update_weights(const NamedViews& weights, const UpdateOptions& options) {
    const detail::NamedPointers given(weights);
    std::vector<DLTensor> factors;
    factors.reserve(2 * options.deltas.size());
    std::vector<aotpack_weight_delta> deltas;
    deltas.reserve(options.deltas.size());
    std::vector<const aotpack_weight_delta*> pointers;
    for (const WeightDelta& given_delta : options.deltas) {
      aotpack_weight_delta& delta = deltas.emplace_back();
      delta.struct_size = sizeof delta;
      delta.name = given_delta.name.c_str();
      delta.down = &factors.emplace_back(given_delta.down.dl());
      delta.up = &factors.emplace_back(given_delta.up.dl());
      delta.scale = given_delta.scale;
      pointers.push_back(&delta);
    }
    aotpack_update_options raw{};
    raw.struct_size = sizeof raw;
    raw.num_threads = options.num_threads;
    if (options.partial) raw.flags |= AOTPACK_UPDATE_PARTIAL;
    if (options.from_archive) raw.flags |= AOTPACK_UPDATE_FROM_ARCHIVE;
    if (!options.keep_originals) raw.flags |= AOTPACK_UPDATE_DISCARD_ORIGINALS;
    raw.deltas = pointers.data();
    raw.delta_count = pointers.size();
    detail::check(aotpack_model_update_weights(handle_, given.names(), given.tensors(), given.size(), &raw));
  }
  void reset_weights() { detail::check(aotpack_model_reset_weights(handle_)); }
  uint64_t weight_generation() const noexcept { return aotpack_model_weight_generation(handle_); }

  // The tensors that the model writes to. Every context has its own copies.
  std::vector<aotpack_weight_info> state() const {
    std::vector<aotpack_weight_info> infos;
    for (size_t i = 0; i < aotpack_model_state_count(handle_); ++i)
      infos.push_back(detail::copy_info(aotpack_model_state(handle_, i)));
    return infos;
  }

  aotpack_model* handle() const noexcept { return handle_; }

 private:
  explicit Model(aotpack_model* handle) noexcept : handle_(handle) {}

  static std::string_view text(const char* value) {
    if (value == nullptr) throw Error(AOTPACK_INVALID_ARGUMENT, "there is no such entry or variant");
    return value;
  }
  static const aotpack_value_info& info(const aotpack_value_info* value) {
    if (value == nullptr) throw Error(AOTPACK_INVALID_ARGUMENT, "there is no such entry, input or output");
    return *value;
  }

  aotpack_model* handle_;
};

namespace detail {

// The array of pointers that the C functions accept.
class Pointers {
 public:
  template <typename View>
  explicit Pointers(const std::vector<View>& views) {
    tensors_.reserve(views.size());
    pointers_.reserve(views.size());
    for (const View& view : views) pointers_.push_back(&tensors_.emplace_back(view.dl()));
  }
  const DLTensor* const* data() const noexcept { return pointers_.data(); }
  size_t size() const noexcept { return pointers_.size(); }

 private:
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
};

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
  // `num_threads` per call; 0: one per core available to this process.
  explicit Context(const Model& model, int32_t num_threads = 0) : model_(model) {
    aotpack_context_options options{};
    options.struct_size = sizeof options;
    options.num_threads = num_threads;
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

// A thread of a pipeline; see aotpack_pipeline_worker.
struct PipelineWorker {
  size_t stage = 0;
  std::vector<int32_t> cpus = {};  // empty: a share of the CPUs of the thread that makes the pipeline
  int32_t num_threads = 0;         // 0: one per CPU
};

// See aotpack_pipeline_options.
struct PipelineOptions {
  size_t entry = 0;
  std::vector<PipelineWorker> workers = {};  // empty: one per stage
  size_t max_in_flight = 0;                  // 0: two per worker
  std::optional<uint64_t> seed = {};
};

// A call that a pipeline runs. Movable; may outlive the pipeline.
class PendingCall {
 public:
  // Whether the call has ended, after at most `timeout_ns`; negative: whenever that is.
  bool wait(int64_t timeout_ns = -1) {
    bool ended = false;
    detail::check(aotpack_call_wait(handle_.get(), timeout_ns, &ended));
    return ended;
  }
  // Waits, and moves the results out, once. Throws what the call has failed with.
  std::vector<Tensor> take() {
    std::vector<DLManagedTensorVersioned*> raw(num_outputs_);
    std::vector<Tensor> outputs(raw.size());
    detail::check(aotpack_call_take(handle_.get(), raw.data(), raw.size()));
    for (size_t i = 0; i < raw.size(); ++i) outputs[i] = Tensor(raw[i]);
    return outputs;
  }

 private:
  friend class Pipeline;
  struct Deleter {
    void operator()(aotpack_call* call) const noexcept { aotpack_call_release(call); }
  };
  PendingCall(aotpack_call* handle, size_t num_outputs) noexcept : handle_(handle), num_outputs_(num_outputs) {}
  std::unique_ptr<aotpack_call, Deleter> handle_;
  size_t num_outputs_;
};

// Runs the steps of an entry on threads of its own, several calls at a time. Movable; any number of threads may use it.
class Pipeline {
 public:
  explicit Pipeline(const Model& model, const PipelineOptions& options = {}) : model_(model), entry_(options.entry) {
    std::vector<aotpack_pipeline_worker> workers;
    workers.reserve(options.workers.size());
    std::vector<const aotpack_pipeline_worker*> pointers;
    for (const PipelineWorker& given : options.workers) {
      aotpack_pipeline_worker& worker = workers.emplace_back();
      worker.struct_size = sizeof worker;
      worker.stage = given.stage;
      worker.cpus = given.cpus.data();
      worker.cpu_count = given.cpus.size();
      worker.num_threads = given.num_threads;
      pointers.push_back(&worker);
    }
    aotpack_pipeline_options raw{};
    raw.struct_size = sizeof raw;
    raw.entry = options.entry;
    raw.workers = pointers.data();
    raw.worker_count = pointers.size();
    raw.max_in_flight = options.max_in_flight;
    raw.seed = options.seed.value_or(0);
    raw.seeded = options.seed.has_value();
    aotpack_pipeline* handle = nullptr;
    detail::check(aotpack_pipeline_create(model.handle(), &raw, &handle));
    handle_.reset(handle);
  }

  const Model& model() const noexcept { return model_; }

  // Starts a call when there is room. Inputs are copied, except those that the model writes to: MutableTensorViews,
  // whose memory must not be used otherwise until the call has ended.
  PendingCall submit(const std::vector<TensorView>& inputs) {
    detail::check_written(model_, inputs, entry_);
    const detail::Pointers given(inputs);
    aotpack_call* call = nullptr;
    detail::check(aotpack_pipeline_submit(handle_.get(), given.data(), given.size(), &call));
    return PendingCall(call, model_.output_count(entry_));
  }
  // Accepts no more calls; returns when all have ended. With `cancel`, those that wait for a stage fail.
  void close(bool cancel = false) { detail::check(aotpack_pipeline_close(handle_.get(), cancel)); }

  // Copies of the state after all calls that were submitted before.
  NamedTensors state() {
    NamedTensors state;
    size_t index = 0;
    for (const aotpack_weight_info& info : model_.state()) {
      DLManagedTensorVersioned* tensor = nullptr;
      detail::check(aotpack_pipeline_get_state(handle_.get(), index++, &tensor));
      Tensor owner(tensor);
      state.emplace_back(info.name, std::move(owner));
    }
    return state;
  }
  void load_state(const NamedViews& state) {
    const detail::NamedPointers given(state);
    detail::check(aotpack_pipeline_load_state(handle_.get(), given.names(), given.tensors(), given.size()));
  }
  void reset() { detail::check(aotpack_pipeline_reset(handle_.get())); }

  aotpack_pipeline* handle() const noexcept { return handle_.get(); }

 private:
  struct Deleter {
    void operator()(aotpack_pipeline* pipeline) const noexcept { aotpack_pipeline_release(pipeline); }
  };
  Model model_;
  size_t entry_;
  std::unique_ptr<aotpack_pipeline, Deleter> handle_;
};

}  // namespace aotpack
