#include "model/model.h"

#include <chrono>
#include <set>
#include <thread>

#include "base/dltensor.h"
#include "base/status.h"

namespace aotpack::runtime {
namespace {

// The targets that an archive has implementations for, each once.
std::string targets_of(const Manifest& manifest) {
  std::set<std::string_view> seen;
  std::string names;
  for (const EntryRecord& entry : manifest.entries) {
    for (const VariantRecord& variant : entry.variants) {
      for (const ImplementationRecord& each : variant.implementations) {
        if (seen.insert(each.target).second) names += (names.empty() ? "" : ", ") + each.target;
      }
    }
  }
  return names;
}

Device& require_device(const char* path, aotpack_verify verify, FileMap::Mode mode, DLDevice id) {
  try {
    return find_device(id);
  } catch (const Error& error) {
    const Archive archive(path, verify, mode);
    throw Error(error.code(), archive.path() + ": cannot run on " + device_name(id) + ": " + error.message() +
                                  "; the archive has modules for " + targets_of(archive.manifest()));
  }
}

// Archives of models that are trained name their entries so (docs/training.md).
bool is_training(std::string_view entry) noexcept {
  constexpr std::string_view kEntries[] = {"train_step", "accumulate", "gradients", "apply"};
  return std::find(std::begin(kEntries), std::end(kEntries), entry) != std::end(kEntries);
}

}  // namespace

Model::Model(const char* path, aotpack_verify verify, FileMap::Mode mode, DLDevice device)
    : Model(path, verify, mode, require_device(path, verify, mode, device)) {}

Model::Model(const char* path, aotpack_verify verify, FileMap::Mode mode, Device& device)
    : device_(device), archive_(path, verify, mode) {
  const Manifest& manifest = archive_.manifest();
  if (manifest.code_only) {
    throw Error(AOTPACK_MISSING_WEIGHTS,
                archive_.path() + ": the archive is code-only: it contains no weights; `aotpack pack " +
                    archive_.path() + " --weights FILE -o OUTPUT` creates an archive with weights from it");
  }
  entries_.reserve(manifest.entries.size());
  for (const EntryRecord& record : manifest.entries) add_entry(record);
  load_modules();
  if (device_.is_host()) tunings_ = Tunings(archive_);
  for (ModelEntry& entry : entries_) {
    for (Variant& variant : entry.variants) {
      for (Step& step : variant.steps) step.tunings = tunings_.of(step.module->target);
    }
  }
  place_state();
  find_readers();
  archive_.end_loading();
  add_infos();
  std::shared_ptr<const WeightSet> weights = make_weights(archived_values(), 0);
  if (manifest.weights) current_ = weights;
  if (!manifest.weights || device_.is_host()) original_ = std::move(weights);
}

void Model::find_readers() {
  const std::vector<ConstantRecord>& records = archive_.manifest().constants;
  device_reads_.resize(records.size());
  host_reads_.resize(records.size());
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].mutated) (on_host_[i] ? host_reads_ : device_reads_)[i] = true;
  }
  for (const ModelEntry& entry : entries_) {
    for (const Variant& variant : entry.variants) {
      for (const Step& step : variant.steps) {
        for (const uint32_t index : step.module->constants) (step.on_host ? host_reads_ : device_reads_)[index] = true;
      }
    }
  }
}

// The archive's pages; on another device what is there already.
Model::Values Model::archived_values() const {
  Values values(archive_.manifest().constants.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (device_.is_host()) {
      values[i].data = archive_.constant(i);
      continue;
    }
    if (current_ != nullptr && current_->values()[i].host == archive_.constant(i)) values[i] = current_->values()[i];
    values[i].host = archive_.constant(i);
  }
  return values;
}

std::shared_ptr<const WeightSet> Model::make_weights(Values values, uint64_t id) {
  if (device_.is_host()) return std::make_shared<const WeightSet>(archive_, entries_, id, std::move(values));
  std::vector<size_t> missing;
  std::vector<size_t> bytes;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!device_reads_[i] || values[i].data != nullptr) continue;
    missing.push_back(i);
    bytes.push_back(extent_bytes(archive_.manifest().constants[i]));
  }
  const std::vector<std::shared_ptr<void>> owners = allocate_weights(device_, bytes, !is_updatable());
  std::vector<Transfer> transfers;
  for (size_t i = 0; i < missing.size(); ++i) {
    ConstantValue& value = values[missing[i]];
    const bool once = value.host_owner == nullptr && !host_reads_[missing[i]];
    transfers.push_back({owners[i].get(), value.host, bytes[i], once});
    value.data = owners[i].get();
    value.owner = owners[i];
  }
  device_.upload(transfers);
  for (const size_t index : missing) {
    if (host_reads_[index] || values[index].host_owner == nullptr) continue;
    values[index].host = nullptr;
    values[index].host_owner = nullptr;
  }
  return std::make_shared<const WeightSet>(archive_, entries_, id, std::move(values));
}

void Model::add_infos() {
  const Manifest& manifest = archive_.manifest();
  if (manifest.weights) {
    const DLDevice host = host_device().id();
    for (const WeightRecord& record : manifest.weights->tensors) weight_infos_.push_back(weight_info(record, host));
  }
  for (uint32_t i = 0; i < manifest.constants.size(); ++i) {
    if (!manifest.constants[i].mutated) continue;
    state_.push_back(i);
    const Device& device = is_on_host(i) ? host_device() : device_;
    state_infos_.push_back(weight_info(manifest.constants[i], device.id()));
  }
}

void Model::add_entry(const EntryRecord& record) {
  ModelEntry& entry = entries_.emplace_back(ModelEntry{EntryPlan(record), EntryInfos(record, device_.id()), {}, {}});
  std::set<std::string_view> targets;
  for (const VariantRecord& variant : record.variants) {
    entry.variants.push_back(
        make_variant(variant, archive_.manifest(), &entry.plan, device_, describe(record, variant)));
    for (Step& step : entry.variants.back().steps) step.trains = is_training(record.name);
    const std::string& target = entry.variants.back().implementation->target;
    if (targets.insert(target).second) entry.targets += (entry.targets.empty() ? "" : ", ") + target;
  }
}

std::string Model::describe(const EntryRecord& entry, const VariantRecord& variant) const {
  std::string what = archive_.path() + ": entry '" + entry.name + "'";
  if (entry.variants.size() > 1) what += ", variant '" + variant.name + "'";
  return what;
}

std::string Model::describe_step(const EntryRecord& entry, const Variant& variant, const Step& step) const {
  return describe(entry, *variant.record) + step_suffix(variant, step) + ", " +
         archive_.manifest().files[step.module->file].path;
}

// All code is verified before any of it runs: what this host takes in memory that cannot change, from which it is then
// loaded, the rest in the file.
void Model::load_modules() {
  std::map<ExecutableKey, SealedFile> code;
  std::map<ExecutableKey, std::vector<Bytes>> assets;
  std::vector<bool> verified(archive_.manifest().files.size());
  for (const ModelEntry& entry : entries_) {
    for (const Variant& variant : entry.variants) {
      for (const Step& step : variant.steps) {
        const uint32_t file = step.module->file;
        const ExecutableKey key{file, step.on_host};
        if (code.contains(key)) continue;
        code.emplace(key, archive_.code(file));
        verified[file] = true;
        assets.emplace(key, assets_.of(archive_, *step.module, &verified));
      }
    }
  }
  archive_.check_code(verified);
  for (ModelEntry& entry : entries_) {
    for (Variant& variant : entry.variants) {
      for (Step& step : variant.steps) {
        const std::string what = describe_step(entry.plan.record(), variant, step);
        const ExecutableKey key{step.module->file, step.on_host};
        std::unique_ptr<Executable>& executable = executables_[key];
        if (executable == nullptr) {
          Device& device = step.on_host ? host_device() : device_;
          executable = device.load({std::move(code[key]), std::move(assets[key]), step.module, step.num_inputs,
                                    step.num_outputs, what, device.id()});
        } else {
          executable->check(*step.module, step.num_inputs, step.num_outputs, what);
        }
        step.executable = executable.get();
        step.call = ModuleCall(*executable, step.numbers, step.num_outputs, step.module->constants.size());
      }
    }
  }
}

// A mutated constant is read on one device (the manifest's reader sees to it).
void Model::place_state() {
  on_host_.resize(archive_.manifest().constants.size());
  for (const ModelEntry& entry : entries_) {
    for (const Variant& variant : entry.variants) {
      for (const Step& step : variant.steps) {
        for (const uint32_t index : step.module->constants) {
          if (step.on_host && archive_.manifest().constants[index].mutated) on_host_[index] = true;
        }
      }
    }
  }
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

void Model::replace_weights(Base base, const MakeValues& make) {
  require_updatable();
  const std::lock_guard updating(update_mutex_);
  swap_weights(make_weights(make(base == Base::kArchive ? archived_values() : current_->values()), next_id_++));
}

void Model::reset_weights() {
  require_updatable();
  const std::lock_guard updating(update_mutex_);
  swap_weights(original_ != nullptr ? original_ : make_weights(archived_values(), next_id_++));
}

void Model::swap_weights(std::shared_ptr<const WeightSet> next) {
  const bool keeps = current_ == original_;  // only updates write to current_
  {
    const std::lock_guard lock(weights_mutex_);
    current_.swap(next);
    generation_.fetch_add(1, std::memory_order_release);
  }
  if (keeps) return;
  // No call can begin on the old set any more. Freeing gigabytes takes a while; better here than at the end of
  // somebody's call, so the calls that are running get some time to end.
  constexpr auto kPatience = std::chrono::milliseconds(250);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (next.use_count() > 1 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace aotpack::runtime
