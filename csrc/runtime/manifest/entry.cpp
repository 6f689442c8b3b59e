#include "manifest/entry.h"

#include "base/bytes.h"
#include "manifest/fields.h"
#include "manifest/implementation.h"
#include "manifest/spec.h"
#include "manifest/values.h"

namespace aotpack::runtime {
namespace {

std::vector<uint32_t> read_group(const Node& list, const EntryRecord& entry) {
  std::vector<uint32_t> group;
  for (size_t i = 0; i < list.size(); ++i) {
    const Node item = list.at(i);
    const auto index = static_cast<uint64_t>(item.integer(0));
    if (index >= entry.inputs.size()) item.error("there is no such input");
    if (!group.empty() && index <= group.back()) item.error("not in ascending order");
    group.push_back(static_cast<uint32_t>(index));
    const ValueRecord& first = entry.inputs[group.front()];
    const ValueRecord& value = entry.inputs[index];
    if (value.number != AOTPACK_NUMBER_NONE) item.error("'" + value.name + "' is a number");
    if (value.dtype != first.dtype || value.order != first.order || value.device != first.device)
      item.error("'" + first.name + "' and '" + value.name + "' differ in dtype, order or device");
  }
  if (group.size() < 2) list.error("has less than two inputs");
  return group;
}

// Of tensors: `same` of a variant or a golden.
std::vector<std::vector<uint32_t>> read_same(const Node& list, const EntryRecord& entry) {
  std::vector<std::vector<uint32_t>> same;
  std::vector<bool> known(entry.inputs.size());
  for (size_t i = 0; i < list.size(); ++i) {
    same.push_back(read_group(list.at(i), entry));
    for (const uint32_t index : same.back()) {
      if (known[index]) list.at(i).error("'" + entry.inputs[index].name + "' is in two groups");
      known[index] = true;
    }
  }
  return same;
}

void read_variant(const Node& node, const Manifest& manifest, const EntryRecord& entry, VariantRecord* out) {
  const bool has_steps = manifest.format_version >= Manifest::kStepsVersion;
  if (manifest.format_version >= Manifest::kSameVersion) {
    node.keys({"checks", "guards", "name", "same", "targets"});
    out->same = read_same(node.at("same"), entry);
  } else {
    node.keys({"checks", "guards", has_steps ? "targets" : "modules", "name"});
  }
  out->name = node.at("name").name();
  const Node guards = node.at("guards");
  for (size_t i = 0; i < guards.size(); ++i) out->guards.push_back(read_guard(guards.at(i), entry));
  const Node checks = node.at("checks");
  for (size_t i = 0; i < checks.size(); ++i) out->checks.push_back(read_check(checks.at(i), entry));
  out->implementations = read_implementations(node.at(has_steps ? "targets" : "modules"), manifest, entry);
}

void check_golden_tensor(const Node& node, const Manifest& manifest, const ValueRecord& value, bool output) {
  node.keys({"dtype", "file", "nbytes", "offset", "shape", "step"});
  const DType* type = read_dtype(node.at("dtype"));
  if (type != value.dtype) node.at("dtype").error("not the dtype of '" + value.name + "'");
  const std::vector<int64_t> shape = read_sizes(node.at("shape"));
  if (shape.size() != value.shape.size()) node.at("shape").error("not the rank of '" + value.name + "'");
  const uint32_t file = read_file_index(node.at("file"), manifest, "goldens/");
  const auto offset = static_cast<uint64_t>(node.at("offset").integer(0));
  const auto nbytes = static_cast<uint64_t>(node.at("nbytes").integer(0));
  check_byte_range(node, manifest.files[file], offset, nbytes);
  const auto step = static_cast<uint64_t>(node.at("step").integer(1));
  if (!output && step != 1) node.at("step").error("must be 1 for an input");
  uint64_t count = 1;
  for (const int64_t size : shape) {
    if (!checked_mul(count, static_cast<uint64_t>(size), &count)) node.error("shape overflows");
  }
  const uint64_t kept = count / step + (count % step != 0 ? 1 : 0);
  uint64_t wanted;
  if (!checked_mul<uint64_t>(kept, type->size, &wanted) || wanted != nbytes) {
    node.at("nbytes").error("does not agree with shape, dtype and step");
  }
}

void check_golden(const Node& node, const Manifest& manifest, const EntryRecord& entry) {
  if (manifest.format_version >= Manifest::kSameVersion) {
    node.keys({"inputs", "outputs", "same", "tolerance"});
    read_same(node.at("same"), entry);
  } else {
    node.keys({"inputs", "outputs", "tolerance"});
  }
  if (!(node.at("tolerance").number() >= 0)) node.at("tolerance").error("is negative");
  for (const bool output : {false, true}) {
    const Node list = node.at(output ? "outputs" : "inputs");
    const std::vector<ValueRecord>& values = output ? entry.outputs : entry.inputs;
    if (list.size() != values.size()) list.error("not as many tensors as the entry has");
    for (size_t i = 0; i < values.size(); ++i) check_golden_tensor(list.at(i), manifest, values[i], output);
  }
}

}  // namespace

void read_entry(const Node& node, const Manifest& manifest, EntryRecord* out) {
  node.keys({"dims", "goldens", "in_spec", "inputs", "name", "out_spec", "outputs", "variants"});
  out->name = node.at("name").name();
  read_dims(node.at("dims"), out);
  out->inputs = read_values(node.at("inputs"), manifest, *out, false);
  out->outputs = read_values(node.at("outputs"), manifest, *out, true);
  const Node variants = node.at("variants");
  out->variants.resize(variants.size());
  if (out->variants.empty()) variants.error("is empty");
  Unique names;
  for (size_t i = 0; i < out->variants.size(); ++i) {
    read_variant(variants.at(i), manifest, *out, &out->variants[i]);
    names.add(variants.at(i), out->variants[i].name);
  }
  check_determined(node, *out);
  check_spec(node.at("in_spec"), out->inputs.size(), true);
  check_spec(node.at("out_spec"), out->outputs.size(), false);
  const Node goldens = node.at("goldens");
  if (manifest.code_only && goldens.size() != 0) goldens.error("example calls without the bytes of the weights");
  for (size_t i = 0; i < goldens.size(); ++i) check_golden(goldens.at(i), manifest, *out);
}

}  // namespace aotpack::runtime
