// Part of aotpack.hpp: loading a model, its description and its weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aotpack/aotpack.h"
#include "aotpack/tensors.hpp"

namespace aotpack {

enum class Verify { kCode = AOTPACK_VERIFY_CODE, kFull = AOTPACK_VERIFY_FULL };
enum class Load { kDefault = AOTPACK_LOAD_DEFAULT, kMap = AOTPACK_LOAD_MAP, kCopy = AOTPACK_LOAD_COPY };

// How Model::load loads; see aotpack_load_options.
struct LoadOptions {
  Verify verify = Verify::kCode;
  Load mode = Load::kDefault;
  DLDevice device = {kDLCPU, 0};   // where the model runs
  std::optional<int> graphs;       // CUDA graphs that each context keeps at most; 0: none; default: 8
  std::string provider_path = {};  // folders with libraries such as cuFFT, separated by ':'
  bool prefetch = false;           // threads map the pages of the file, so that the first call need not wait for them
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
    options.prefetch = how.prefetch;
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

}  // namespace aotpack
