#include "model.h"

#include <chrono>
#include <thread>

#include "status.h"
#include "target.h"
#include "update.h"

namespace aotpack::runtime {

Model::Model(const char* path, aotpack_verify verify) : archive_(path, verify) {
  const Manifest& manifest = archive_.manifest();
  entries_.reserve(manifest.entries.size());
  for (const EntryRecord& record : manifest.entries) add_entry(record);
  add_infos();
  std::vector<ConstantValue> values;
  for (size_t i = 0; i < manifest.constants.size(); ++i) values.push_back({archive_.constant(i), nullptr});
  original_ = std::make_shared<const WeightSet>(archive_, entries_, 0, std::move(values));
  if (manifest.weights) current_ = original_;
}

void Model::add_infos() {
  const Manifest& manifest = archive_.manifest();
  const auto info_of = [](const auto& record) {
    return aotpack_weight_info{record.name.c_str(), record.dtype->dlpack, static_cast<int32_t>(record.shape.size()),
                               record.shape.data()};
  };
  if (manifest.weights) {
    for (const WeightRecord& record : manifest.weights->tensors) weight_infos_.push_back(info_of(record));
  }
  for (uint32_t i = 0; i < manifest.constants.size(); ++i) {
    if (!manifest.constants[i].mutated) continue;
    state_.push_back(i);
    state_infos_.push_back(info_of(manifest.constants[i]));
  }
}

void Model::add_entry(const EntryRecord& record) {
  ModelEntry& entry = entries_.emplace_back(ModelEntry{EntryPlan(record), {}});
  for (const VariantRecord& variant : record.variants) entry.variants.push_back(make_variant(record, variant));
}

Variant Model::make_variant(const EntryRecord& entry, const VariantRecord& record) {
  std::string what = archive_.path() + ": entry '" + entry.name + "'";
  if (entry.variants.size() > 1) what += ", variant '" + record.name + "'";
  std::vector<std::string_view> targets;
  for (const ModuleRecord& module : record.modules) targets.push_back(module.target);

  Variant variant;
  variant.record = &record;
  variant.module_record = &record.modules[choose_target(targets, what)];
  const ModuleRecord& chosen = *variant.module_record;
  std::unique_ptr<Module>& module = modules_[chosen.file];
  const std::string module_name = what + ", " + archive_.manifest().files[chosen.file].path;
  if (module == nullptr) {
    module = std::make_unique<Module>(archive_.file(chosen.file), chosen, entry.inputs.size(), entry.outputs.size(),
                                      module_name);
  } else {
    module->check(chosen, entry.inputs.size(), entry.outputs.size(), module_name);
  }
  variant.module = module.get();
  for (const uint32_t index : chosen.constants) {
    variant.mutates_constants = variant.mutates_constants || archive_.manifest().constants[index].mutated;
  }
  return variant;
}

size_t Model::find_entry(std::string_view name) const {
  std::string names;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::string& candidate = entries_[i].plan.record().name;
    if (candidate == name) return i;
    names += (names.empty() ? "" : ", ") + candidate;
  }
  throw Error(AOTPACK_NOT_FOUND, "no entry '" + std::string(name) + "'; the archive has: " + names);
}

WeightsInUse Model::weights() const {
  if (!is_updatable()) return WeightsInUse(original_.get());
  const std::lock_guard lock(weights_mutex_);
  return WeightsInUse(current_);
}

void Model::require_updatable() const {
  if (is_updatable()) return;
  throw Error(AOTPACK_INVALID_ARGUMENT,
              archive_.path() + ": the archive is frozen (it was built without --updatable): its weights are fixed");
}

void Model::update_weights(const GivenWeights& given, int32_t num_threads) {
  require_updatable();
  const std::lock_guard updating(update_mutex_);
  const std::shared_ptr<const WeightSet>& base = given.from_archive ? original_ : current_;
  swap_weights(make_updated_set(this, *base, next_id_++, given, num_threads));
}

void Model::reset_weights() {
  require_updatable();
  const std::lock_guard updating(update_mutex_);
  swap_weights(original_);
}

void Model::swap_weights(std::shared_ptr<const WeightSet> next) {
  const bool keeps = current_ == original_;  // only updates write to current_
  {
    const std::lock_guard lock(weights_mutex_);
    current_.swap(next);
    generation_.fetch_add(1, std::memory_order_release);
  }
  if (keeps) return;
  // Nobody can begin a call on the old set any more. Freeing gigabytes takes a while; better here than at the end of
  // somebody's call, so the calls that are running get some time to end.
  constexpr auto kPatience = std::chrono::milliseconds(250);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (next.use_count() > 1 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace aotpack::runtime
