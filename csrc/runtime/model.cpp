#include "model.h"

#include <algorithm>

#include "status.h"
#include "target.h"

namespace aotpack::runtime {

Model::Model(const char* path, aotpack_verify verify) : archive_(path, verify) {
  const Manifest& manifest = archive_.manifest();
  entries_.reserve(manifest.entries.size());
  for (const EntryRecord& record : manifest.entries) add_entry(record);
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
    const ConstantRecord& constant = archive_.manifest().constants[index];
    variant.constants.push_back(map_constant(constant));
    variant.mutates_constants = variant.mutates_constants || constant.mutated;
  }
  return variant;
}

aotpack_module_tensor Model::map_constant(const ConstantRecord& record) const {
  aotpack_module_tensor tensor = {};
  // The pages are read-only: a module that writes to a constant that is not flagged as mutated gets a fault, not a
  // silent change for everyone.
  tensor.data = const_cast<uint8_t*>(archive_.file(record.file).data() + record.offset);
  tensor.dtype = record.dtype->module_code;
  tensor.rank = static_cast<int32_t>(record.shape.size());
  std::copy(record.shape.begin(), record.shape.end(), tensor.sizes);
  std::copy(record.stride.begin(), record.stride.end(), tensor.strides);
  return tensor;
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

}  // namespace aotpack::runtime
