#include "manifest/implementation.h"

#include <limits>
#include <optional>

#include "aotpack/module_abi.h"
#include "manifest/fields.h"
#include "manifest/values.h"

namespace aotpack::runtime {
namespace {

using Source = ReferenceRecord::Source;

struct SourceName {
  std::string_view name;
  Source source;
};
constexpr SourceName kSources[] = {
    {"input", Source::kInput},
    {"output", Source::kOutput},
    {"value", Source::kValue},
};

void read_asset(const Node& node, const Manifest& manifest, AssetRecord* out) {
  node.keys({"file", "name", "nbytes", "offset"});
  out->name = node.at("name").name();
  out->file = read_file_index(node.at("file"), manifest, "modules/");
  out->offset = static_cast<uint64_t>(node.at("offset").integer(0));
  if (out->offset % AOTPACK_ALIGNMENT != 0) node.at("offset").error("not a multiple of 64");
  out->nbytes = static_cast<uint64_t>(node.at("nbytes").integer(0));
  check_byte_range(node, manifest.files[out->file], out->offset, out->nbytes);
}

void read_assets_and_features(const Node& node, const Manifest& manifest, ModuleRecord* out) {
  const Node assets = node.at("assets");
  out->assets.resize(assets.size());
  Unique names;
  for (size_t i = 0; i < out->assets.size(); ++i) {
    read_asset(assets.at(i), manifest, &out->assets[i]);
    names.add(assets.at(i), out->assets[i].name);
  }
  const Node features = node.at("features");
  out->features.resize(features.size());
  Unique known;
  for (size_t i = 0; i < out->features.size(); ++i) {
    out->features[i] = features.at(i).name();
    known.add(features.at(i), out->features[i]);
  }
}

void read_module(const Node& node, const Manifest& manifest, ModuleRecord* out) {
  const bool has_assets = manifest.format_version >= Manifest::kStepsVersion;
  if (has_assets) {
    node.keys({"abi_version", "assets", "constants", "features", "file", "imports", "kernels", "target"});
    read_assets_and_features(node, manifest, out);
  } else {
    node.keys({"abi_version", "constants", "file", "imports", "kernels", "target"});
  }
  out->target = node.at("target").name();
  out->abi_version = static_cast<uint32_t>(node.at("abi_version").integer(1, std::numeric_limits<uint32_t>::max()));
  out->file = read_file_index(node.at("file"), manifest, "modules/");
  const Node constants = node.at("constants");
  const size_t num_constants = constants.size();
  for (size_t i = 0; i < num_constants; ++i) {
    out->constants.push_back(read_constant_index(constants.at(i), manifest));
  }
  const Node imports = node.at("imports");
  for (size_t i = 0; i < imports.size(); ++i) out->imports.push_back(imports.at(i).name());
  const Node kernels = node.at("kernels");
  const size_t num_kernels = kernels.size();
  for (size_t i = 0; i < num_kernels; ++i) {
    const Node kernel = kernels.at(i);
    kernel.keys({"name", "ops"});
    kernel.at("name").string();
    const Node ops = kernel.at("ops");
    for (size_t j = 0; j < ops.size(); ++j) ops.at(j).string();
  }
}

// What there is at some step: the inputs, and what the steps before it have produced.
class Produced {
 public:
  Produced(const EntryRecord& entry, size_t num_values)
      : num_inputs_(entry.inputs.size()), outputs_(entry.outputs.size()), values_(num_values) {}

  // A reference to what there is.
  ReferenceRecord read(const Node& node) const {
    const ReferenceRecord reference = reference_of(node);
    if (reference.source != Source::kInput && !produced(reference.source)[reference.index]) {
      node.error("no earlier step produces it");
    }
    return reference;
  }

  // A reference to what a step produces.
  ReferenceRecord add(const Node& node) {
    const ReferenceRecord reference = reference_of(node);
    if (reference.source == Source::kInput) node.error("a step does not produce an input");
    std::vector<bool>& list = reference.source == Source::kOutput ? outputs_ : values_;
    if (list[reference.index]) node.error("is produced twice");
    list[reference.index] = true;
    return reference;
  }

  void check_complete(const Node& node, const EntryRecord& entry, const std::vector<ValueRecord>& values) const {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!outputs_[i]) node.error("no step produces output '" + entry.outputs[i].name + "'");
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      if (!values_[i]) node.error("no step produces value '" + values[i].name + "'");
    }
  }

 private:
  const std::vector<bool>& produced(Source source) const { return source == Source::kOutput ? outputs_ : values_; }

  ReferenceRecord reference_of(const Node& node) const {
    if (node.kind() == json::Kind::kObject && node.value().keys.size() == 1) {
      for (const SourceName& known : kSources) {
        if (node.value().keys.front() != known.name) continue;
        const Node index = node.at(known.name);
        const int64_t value = index.integer(0);
        const size_t count = known.source == Source::kInput ? num_inputs_ : produced(known.source).size();
        if (static_cast<uint64_t>(value) >= count) index.error("there is no such " + std::string(known.name));
        return {known.source, static_cast<uint32_t>(value)};
      }
    }
    node.error("expected an object with one key: 'input', 'output' or 'value'");
  }

  size_t num_inputs_;
  std::vector<bool> outputs_;
  std::vector<bool> values_;
};

void read_step(const Node& node, const Manifest& manifest, Produced* produced, StepRecord* out) {
  node.keys({"device", "inputs", "module", "outputs"});
  out->device = read_device(node.at("device"), manifest);
  const Node inputs = node.at("inputs");
  for (size_t i = 0; i < inputs.size(); ++i) out->inputs.push_back(produced->read(inputs.at(i)));
  const Node outputs = node.at("outputs");
  for (size_t i = 0; i < outputs.size(); ++i) out->outputs.push_back(produced->add(outputs.at(i)));
  read_module(node.at("module"), manifest, &out->module);
}

void read_implementation(const Node& node, const Manifest& manifest, const EntryRecord& entry,
                         ImplementationRecord* out) {
  node.keys({"steps", "target", "values"});
  out->target = node.at("target").name();
  out->values = read_intermediates(node.at("values"), manifest, entry);
  const Node steps = node.at("steps");
  out->steps.resize(steps.size());
  if (out->steps.empty()) steps.error("is empty");
  Produced produced(entry, out->values.size());
  for (size_t i = 0; i < out->steps.size(); ++i) read_step(steps.at(i), manifest, &produced, &out->steps[i]);
  produced.check_complete(node, entry, out->values);
}

// Of an earlier format: one module computes the entry.
void read_whole_step(const Node& node, const Manifest& manifest, const EntryRecord&, ImplementationRecord* out) {
  StepRecord& step = out->steps.emplace_back();
  step.is_whole = true;
  read_module(node, manifest, &step.module);
  out->target = step.module.target;
}

}  // namespace

std::vector<ImplementationRecord> read_implementations(const Node& list, const Manifest& manifest,
                                                       const EntryRecord& entry) {
  std::vector<ImplementationRecord> implementations(list.size());
  if (implementations.empty()) list.error("is empty");
  const bool has_steps = manifest.format_version >= Manifest::kStepsVersion;
  Unique targets;
  for (size_t i = 0; i < implementations.size(); ++i) {
    (has_steps ? read_implementation : read_whole_step)(list.at(i), manifest, entry, &implementations[i]);
    targets.add(list.at(i), implementations[i].target);
  }
  return implementations;
}

void check_state(const Node& entries, const Manifest& manifest) {
  std::vector<std::optional<uint32_t>> devices(manifest.constants.size());
  const auto check = [&](const StepRecord& step) {
    for (const uint32_t index : step.module.constants) {
      if (!manifest.constants[index].mutated) continue;
      if (devices[index].value_or(step.device) != step.device) {
        entries.error("steps on several devices read constant '" + manifest.constants[index].name +
                      "', which is mutated");
      }
      devices[index] = step.device;
    }
  };
  for (const EntryRecord& entry : manifest.entries) {
    for (const VariantRecord& variant : entry.variants) {
      for (const ImplementationRecord& implementation : variant.implementations) {
        for (const StepRecord& step : implementation.steps) check(step);
      }
    }
  }
}

}  // namespace aotpack::runtime
