// The C interface over the runtime's classes: checks arguments, catches everything.
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "aotpack/aotpack.h"
#include "api/handles.h"
#include "base/status.h"
#include "call/context.h"
#include "call/tensor_copy.h"
#include "host/processor.h"
#include "model/devices.h"
#include "model/model.h"
#include "update/update.h"

using aotpack::runtime::Context;
using aotpack::runtime::EntryInfos;
using aotpack::runtime::EntryPlan;
using aotpack::runtime::fail;
using aotpack::runtime::FileMap;
using aotpack::runtime::GivenWeights;
using aotpack::runtime::guarded;
using aotpack::runtime::Model;
using aotpack::runtime::require;
using aotpack::runtime::unwrap;
using aotpack::runtime::update_weights;

namespace {

const EntryPlan* find_plan(const aotpack_model* model, size_t entry) {
  if (model == nullptr || entry >= unwrap(model)->entries().size()) return nullptr;
  return &unwrap(model)->entries()[entry].plan;
}

const EntryInfos* find_infos(const aotpack_model* model, size_t entry) {
  return find_plan(model, entry) != nullptr ? &unwrap(model)->entries()[entry].infos : nullptr;
}

// An enum of a C caller, which may have any number: to read it as what it is would be undefined then.
template <typename Enum>
unsigned number_of(const Enum& value) {
  unsigned number = 0;
  static_assert(sizeof number == sizeof value);
  std::memcpy(&number, &value, sizeof number);
  return number;
}

FileMap::Mode file_mode(aotpack_load_mode mode, bool prefetch) {
  const FileMap::Mode map = prefetch ? FileMap::Mode::kPrefetch : FileMap::Mode::kMap;
  if (mode != AOTPACK_LOAD_DEFAULT) return mode == AOTPACK_LOAD_COPY ? FileMap::Mode::kCopy : map;
  const char* text = std::getenv("AOTPACK_LOAD");
  const std::string_view wanted = text != nullptr ? text : "";
  if (wanted.empty() || wanted == "map") return map;
  if (wanted != "copy") fail(AOTPACK_INVALID_ARGUMENT, "AOTPACK_LOAD must be 'map' or 'copy', got '%s'", text);
  return FileMap::Mode::kCopy;
}

}  // namespace

extern "C" {

uint32_t aotpack_abi_version(void) { return AOTPACK_ABI_VERSION; }

const char* aotpack_version(void) { return AOTPACK_VERSION_STRING; }

const char* aotpack_host_target(void) {
  try {
    const auto& targets = aotpack::runtime::host_device().targets();
    return targets.empty() ? "" : targets.front().data();  // a view of a literal, so zero-terminated
  } catch (...) {
    return "";
  }
}

aotpack_code aotpack_status_code(const aotpack_status* status) { return status != nullptr ? status->code : AOTPACK_OK; }

const char* aotpack_status_message(const aotpack_status* status) {
  return status != nullptr ? status->message.c_str() : "";
}

void aotpack_status_release(aotpack_status* status) { aotpack::runtime::release_status(status); }

const char* aotpack_code_name(aotpack_code code) {
  static constexpr const char* kNames[] = {
      "OK",
      "INVALID_ARGUMENT",
      "NOT_FOUND",
      "IO_ERROR",
      "FOREIGN_ARCHIVE",
      "TRUNCATED_ARCHIVE",
      "MALFORMED_ARCHIVE",
      "TAMPERED_ARCHIVE",
      "UNSUPPORTED_VERSION",
      "UNSUPPORTED_TARGET",
      "MISSING_IMPORT",
      "OUT_OF_MEMORY",
      "EXECUTION_FAILED",
      "INTERNAL",
      "DEVICE_FAILED",
      "MISSING_WEIGHTS",
      "CANCELLED",
  };
  const unsigned index = number_of(code);
  return index < std::size(kNames) ? kNames[index] : "UNKNOWN";
}

aotpack_status* aotpack_model_load(const char* path, const aotpack_load_options* options, aotpack_model** out_model) {
  if (out_model != nullptr) *out_model = nullptr;
  return guarded([&] {
    require(path != nullptr, "path is NULL");
    require(out_model != nullptr, "out_model is NULL");
    aotpack_load_options all{};
    if (options != nullptr) {
      require(options->struct_size >= offsetof(aotpack_load_options, verify) + sizeof options->verify,
              "aotpack_load_options.struct_size is not set");
      // A caller may know fewer members, or more.
      std::memcpy(&all, options, std::min(options->struct_size, sizeof all));
      require(number_of(all.verify) <= AOTPACK_VERIFY_FULL, "aotpack_load_options.verify is unknown");
      require(number_of(all.mode) <= AOTPACK_LOAD_COPY, "aotpack_load_options.mode is unknown");
      require(all.graphs >= -1 && all.graphs <= Model::kMostGraphs,
              "aotpack_load_options.graphs must be in [-1, 4096]");
    }
    if (all.provider_path != nullptr) aotpack::runtime::add_library_folders(all.provider_path);
    auto* model = new Model(path, all.verify, file_mode(all.mode, all.prefetch != 0), all.device);
    if (all.graphs != 0) model->set_graphs(static_cast<size_t>(std::max(all.graphs, 0)));
    *out_model = reinterpret_cast<aotpack_model*>(model);
  });
}

void aotpack_model_retain(aotpack_model* model) {
  if (model != nullptr) unwrap(model)->retain();
}

void aotpack_model_release(aotpack_model* model) {
  if (model != nullptr) unwrap(model)->release();
}

DLDevice aotpack_model_device(const aotpack_model* model) {
  return model != nullptr ? unwrap(model)->device().id() : DLDevice{};
}

const char* aotpack_model_manifest(const aotpack_model* model, size_t* out_length) {
  if (out_length != nullptr) *out_length = 0;
  if (model == nullptr) return "";
  const std::string& text = unwrap(model)->archive().manifest_text();
  if (out_length != nullptr) *out_length = text.size();
  return text.c_str();
}

size_t aotpack_model_entry_count(const aotpack_model* model) {
  return model != nullptr ? unwrap(model)->entries().size() : 0;
}

const char* aotpack_model_entry_name(const aotpack_model* model, size_t entry) {
  const EntryPlan* plan = find_plan(model, entry);
  return plan != nullptr ? plan->record().name.c_str() : nullptr;
}

aotpack_status* aotpack_model_find_entry(const aotpack_model* model, const char* name, size_t* out_entry) {
  if (out_entry != nullptr) *out_entry = 0;
  return guarded([&] {
    require(model != nullptr, "model is NULL");
    require(name != nullptr, "name is NULL");
    require(out_entry != nullptr, "out_entry is NULL");
    *out_entry = unwrap(model)->find_entry(name);
  });
}

const char* aotpack_model_entry_target(const aotpack_model* model, size_t entry) {
  if (find_plan(model, entry) == nullptr) return nullptr;
  return unwrap(model)->entries()[entry].targets.c_str();
}

size_t aotpack_model_variant_count(const aotpack_model* model, size_t entry) {
  return find_plan(model, entry) != nullptr ? unwrap(model)->entries()[entry].variants.size() : 0;
}

const char* aotpack_model_variant_target(const aotpack_model* model, size_t entry, size_t variant) {
  if (variant >= aotpack_model_variant_count(model, entry)) return nullptr;
  return unwrap(model)->entries()[entry].variants[variant].implementation->target.c_str();
}

const char* aotpack_model_variant_name(const aotpack_model* model, size_t entry, size_t variant) {
  if (variant >= aotpack_model_variant_count(model, entry)) return nullptr;
  return unwrap(model)->entries()[entry].variants[variant].record->name.c_str();
}

size_t aotpack_model_input_count(const aotpack_model* model, size_t entry) {
  const EntryInfos* infos = find_infos(model, entry);
  return infos != nullptr ? infos->inputs().size() : 0;
}

size_t aotpack_model_output_count(const aotpack_model* model, size_t entry) {
  const EntryInfos* infos = find_infos(model, entry);
  return infos != nullptr ? infos->outputs().size() : 0;
}

const aotpack_value_info* aotpack_model_input(const aotpack_model* model, size_t entry, size_t index) {
  const EntryInfos* infos = find_infos(model, entry);
  return infos != nullptr && index < infos->inputs().size() ? &infos->inputs()[index] : nullptr;
}

const aotpack_value_info* aotpack_model_output(const aotpack_model* model, size_t entry, size_t index) {
  const EntryInfos* infos = find_infos(model, entry);
  return infos != nullptr && index < infos->outputs().size() ? &infos->outputs()[index] : nullptr;
}

bool aotpack_model_is_updatable(const aotpack_model* model) {
  return model != nullptr && unwrap(model)->is_updatable();
}

size_t aotpack_model_weight_count(const aotpack_model* model) {
  return model != nullptr ? unwrap(model)->weight_infos().size() : 0;
}

const aotpack_weight_info* aotpack_model_weight(const aotpack_model* model, size_t index) {
  return index < aotpack_model_weight_count(model) ? &unwrap(model)->weight_infos()[index] : nullptr;
}

aotpack_status* aotpack_model_update_weights(aotpack_model* model, const char* const* names,
                                             const DLTensor* const* tensors, size_t count,
                                             const aotpack_update_options* options) {
  return guarded([&] {
    require(model != nullptr, "model is NULL");
    aotpack_update_options all{};
    if (options != nullptr) {
      require(options->struct_size >= offsetof(aotpack_update_options, num_threads) + sizeof options->num_threads,
              "aotpack_update_options.struct_size is not set");
      // A caller may know fewer members, or more.
      std::memcpy(&all, options, std::min(options->struct_size, sizeof all));
      require(all.num_threads >= 0 && all.num_threads <= Context::kMaxThreads, "num_threads must be in [0, 4096]");
    }
    constexpr uint64_t kFlags = AOTPACK_UPDATE_PARTIAL | AOTPACK_UPDATE_FROM_ARCHIVE | AOTPACK_UPDATE_DISCARD_ORIGINALS;
    require((all.flags & ~kFlags) == 0, "aotpack_update_options.flags has an unknown flag");
    GivenWeights given{names, tensors, count, all.deltas, all.delta_count};
    given.partial = (all.flags & AOTPACK_UPDATE_PARTIAL) != 0;
    given.from_archive = (all.flags & AOTPACK_UPDATE_FROM_ARCHIVE) != 0;
    given.keep_originals = (all.flags & AOTPACK_UPDATE_DISCARD_ORIGINALS) == 0;
    update_weights(unwrap(model), given, all.num_threads == 0 ? 1 : all.num_threads);
  });
}

aotpack_status* aotpack_model_reset_weights(aotpack_model* model) {
  return guarded([&] {
    require(model != nullptr, "model is NULL");
    unwrap(model)->reset_weights();
  });
}

uint64_t aotpack_model_weight_generation(const aotpack_model* model) {
  return model != nullptr ? unwrap(model)->weight_generation() : 0;
}

aotpack_status* aotpack_context_create(aotpack_model* model, const aotpack_context_options* options,
                                       aotpack_context** out_context) {
  if (out_context != nullptr) *out_context = nullptr;
  return guarded([&] {
    require(model != nullptr, "model is NULL");
    require(out_context != nullptr, "out_context is NULL");
    int32_t num_threads = 0;
    aotpack::runtime::CpuSet cpus;
    if (options != nullptr) {
      require(options->struct_size >= offsetof(aotpack_context_options, num_threads) + sizeof options->num_threads,
              "aotpack_context_options.struct_size is not set");
      num_threads = options->num_threads;
      if (options->struct_size >= sizeof *options) {
        require(options->cpus != nullptr || options->cpu_count == 0, "aotpack_context_options.cpus is NULL");
        cpus.assign(options->cpus, options->cpus + options->cpu_count);
      }
    }
    *out_context = reinterpret_cast<aotpack_context*>(
        new Context(unwrap(model), num_threads, aotpack::runtime::Allocator::Keep::kFree, std::move(cpus)));
  });
}

void aotpack_context_release(aotpack_context* context) { delete unwrap(context); }

int32_t aotpack_context_num_threads(const aotpack_context* context) {
  return context != nullptr ? unwrap(context)->num_threads() : 0;
}

aotpack_status* aotpack_context_set_num_threads(aotpack_context* context, int32_t num_threads) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->set_num_threads(num_threads);
  });
}

void aotpack_context_set_seed(aotpack_context* context, uint64_t seed) {
  if (context != nullptr) unwrap(context)->set_seed(seed);
}

aotpack_status* aotpack_context_set_stream(aotpack_context* context, void* stream) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->set_stream(stream);
  });
}

void* aotpack_context_stream(const aotpack_context* context) {
  return context != nullptr ? unwrap(context)->stream() : nullptr;
}

aotpack_status* aotpack_context_synchronize(aotpack_context* context) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->synchronize();
  });
}

aotpack_status* aotpack_context_run(aotpack_context* context, size_t entry, const DLTensor* const* inputs,
                                    size_t num_inputs, DLManagedTensorVersioned** out_outputs, size_t num_outputs) {
  if (out_outputs != nullptr) std::fill_n(out_outputs, num_outputs, nullptr);
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->run(entry, inputs, num_inputs, out_outputs, num_outputs);
  });
}

aotpack_status* aotpack_context_run_into(aotpack_context* context, size_t entry, const DLTensor* const* inputs,
                                         size_t num_inputs, const DLTensor* const* outputs, size_t num_outputs) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->run_into(entry, inputs, num_inputs, outputs, num_outputs);
  });
}

const char* aotpack_context_variant(const aotpack_context* context, size_t entry) {
  return context != nullptr ? unwrap(context)->variant(entry) : nullptr;
}

aotpack_status* aotpack_context_set_profiling(aotpack_context* context, bool enabled) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->set_profiling(enabled);
  });
}

size_t aotpack_context_profile_count(const aotpack_context* context) {
  const auto* profile = context != nullptr ? unwrap(context)->profile() : nullptr;
  return profile != nullptr ? profile->events().size() : 0;
}

const aotpack_profile_event* aotpack_context_profile_event(const aotpack_context* context, size_t index) {
  if (index >= aotpack_context_profile_count(context)) return nullptr;
  return &unwrap(context)->profile()->events()[index];
}

const char* aotpack_host_processor(void) { return aotpack::runtime::processor().c_str(); }

aotpack_status* aotpack_context_set_choices(aotpack_context* context, const aotpack_choice* choices, size_t count,
                                            bool record) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(choices != nullptr || count == 0, "choices is NULL");
    unwrap(context)->set_choices(choices, count, record);
  });
}

aotpack_status* aotpack_context_clear_choices(aotpack_context* context) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->clear_choices();
  });
}

size_t aotpack_context_site_count(const aotpack_context* context) {
  const auto* trial = context != nullptr ? unwrap(context)->trial() : nullptr;
  return trial != nullptr ? trial->sites().size() : 0;
}

const aotpack_site* aotpack_context_site(const aotpack_context* context, size_t index) {
  if (index >= aotpack_context_site_count(context)) return nullptr;
  return &unwrap(context)->trial()->sites()[index];
}

aotpack_status* aotpack_context_to_device(aotpack_context* context, const DLTensor* from,
                                          DLManagedTensorVersioned** out_tensor) {
  if (out_tensor != nullptr) *out_tensor = nullptr;
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(from != nullptr, "from is NULL");
    require(out_tensor != nullptr, "out_tensor is NULL");
    *out_tensor = unwrap(context)->to_device(*from);
  });
}

size_t aotpack_model_state_count(const aotpack_model* model) {
  return model != nullptr ? unwrap(model)->state_infos().size() : 0;
}

const aotpack_weight_info* aotpack_model_state(const aotpack_model* model, size_t index) {
  return index < aotpack_model_state_count(model) ? &unwrap(model)->state_infos()[index] : nullptr;
}

aotpack_status* aotpack_tensor_copy(const DLTensor* from, const DLTensor* to) {
  return guarded([&] {
    require(from != nullptr, "from is NULL");
    require(to != nullptr, "to is NULL");
    aotpack::runtime::copy_tensor(*from, *to);
  });
}

aotpack_status* aotpack_context_get_state(aotpack_context* context, size_t index,
                                          DLManagedTensorVersioned** out_tensor) {
  if (out_tensor != nullptr) *out_tensor = nullptr;
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(out_tensor != nullptr, "out_tensor is NULL");
    *out_tensor = unwrap(context)->get_state(index);
  });
}

aotpack_status* aotpack_context_share_state(aotpack_context* context, size_t index,
                                            DLManagedTensorVersioned** out_tensor) {
  if (out_tensor != nullptr) *out_tensor = nullptr;
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(out_tensor != nullptr, "out_tensor is NULL");
    *out_tensor = unwrap(context)->share_state(index);
  });
}

uint64_t aotpack_context_state_generation(const aotpack_context* context) {
  return context != nullptr ? unwrap(context)->state_generation() : 0;
}

aotpack_status* aotpack_context_load_state(aotpack_context* context, const char* const* names,
                                           const DLTensor* const* tensors, size_t count) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->load_state(names, tensors, count);
  });
}

aotpack_status* aotpack_context_save_state_file(aotpack_context* context, const char* path) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(path != nullptr, "path is NULL");
    unwrap(context)->save_state_file(path);
  });
}

aotpack_status* aotpack_context_load_state_file(aotpack_context* context, const char* path, uint64_t flags) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    require(path != nullptr, "path is NULL");
    require((flags & ~uint64_t{AOTPACK_STATE_ALLOW_MISSING | AOTPACK_STATE_ALLOW_UNEXPECTED}) == 0,
            "flags has bits that are not AOTPACK_STATE_...");
    unwrap(context)->load_state_file(path, flags);
  });
}

aotpack_status* aotpack_context_set_atomic(aotpack_context* context, bool enabled) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->set_atomic(enabled);
  });
}

aotpack_status* aotpack_context_set_check_finite(aotpack_context* context, bool enabled) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->set_check_finite(enabled);
  });
}

aotpack_status* aotpack_context_reset(aotpack_context* context) {
  return guarded([&] {
    require(context != nullptr, "context is NULL");
    unwrap(context)->reset();
  });
}

}  // extern "C"
