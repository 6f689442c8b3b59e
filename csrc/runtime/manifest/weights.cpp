#include "manifest/weights.h"

#include <algorithm>
#include <unordered_map>

#include "aotpack/module_abi.h"
#include "base/strided.h"
#include "manifest/fields.h"

namespace aotpack::runtime {
namespace {

// How an update changes each constant.
enum class Source : uint8_t { kFixed, kTensor, kResult };

bool is_shape(const std::vector<SizeRecord>& shape, const std::vector<int64_t>& sizes) {
  return std::equal(shape.begin(), shape.end(), sizes.begin(), sizes.end(), [](const SizeRecord& size, int64_t wanted) {
    return size.kind == SizeRecord::Kind::kStatic && size.size == wanted;
  });
}

// Whether a dense tensor in the output's order lies in memory as the constant does.
bool lies_like(const ValueRecord& output, const ConstantRecord& constant) {
  if (std::find(constant.shape.begin(), constant.shape.end(), 0) != constant.shape.end()) return true;
  const auto rank = static_cast<int32_t>(constant.shape.size());
  int64_t strides[AOTPACK_MAX_RANK];
  size_t bytes;
  return dense_strides(constant.shape.data(), output.order.data(), rank, constant.dtype->size, strides, &bytes) &&
         same_layout(constant.shape.data(), strides, constant.stride.data(), rank);
}

void read_tensor(const Node& node, const Manifest& manifest, WeightRecord* out) {
  node.keys({"constant", "dtype", "name", "shape"});
  out->name = node.at("name").name();
  out->dtype = read_dtype(node.at("dtype"));
  out->shape = read_sizes(node.at("shape"));
  const Node index = node.at("constant");
  if (index.kind() == json::Kind::kNull) return;
  out->constant = read_constant_index(index, manifest);
  const ConstantRecord& constant = manifest.constants[out->constant];
  if (constant.dtype != out->dtype || constant.shape != out->shape) {
    index.error("constant '" + constant.name + "' has another dtype or shape");
  }
  const auto rank = static_cast<int32_t>(constant.shape.size());
  if (!is_non_overlapping(constant.shape.data(), constant.stride.data(), rank)) {
    index.error("the strides of constant '" + constant.name + "' overlap");
  }
}

void read_result(const Node& node, const ValueRecord& output, const Manifest& manifest, std::vector<Source>* sources,
                 FoldRecord* out) {
  const uint32_t index = read_constant_index(node, manifest);
  const ConstantRecord& constant = manifest.constants[index];
  const auto refuse = [&](const std::string& why) { node.error("constant '" + constant.name + "' " + why); };
  if (constant.mutated) refuse("is mutated");
  if ((*sources)[index] == Source::kTensor) refuse("is that of a tensor");
  if ((*sources)[index] == Source::kResult) refuse("is there twice");
  if (constant.dtype != output.dtype || !is_shape(output.shape, constant.shape) || !lies_like(output, constant)) {
    refuse("is not what output '" + output.name + "' is");
  }
  (*sources)[index] = Source::kResult;
  out->results.push_back(index);
}

void check_inputs(const Node& node, const EntryRecord& entry, const WeightsRecord& weights, FoldRecord* out) {
  std::unordered_map<std::string_view, uint32_t> by_name;
  for (uint32_t i = 0; i < weights.tensors.size(); ++i) by_name.emplace(weights.tensors[i].name, i);
  for (const ValueRecord& value : entry.inputs) {
    const auto found = by_name.find(value.name);
    if (found == by_name.end() || weights.tensors[found->second].constant == WeightRecord::kNone) {
      node.error("input '" + value.name + "' of the entry is not a tensor with a constant");
    }
    const WeightRecord& tensor = weights.tensors[found->second];
    if (value.dtype != tensor.dtype || !is_shape(value.shape, tensor.shape) || value.mutated) {
      node.error("input '" + value.name + "' of the entry is not what the tensor is");
    }
    out->inputs.push_back(found->second);
  }
}

// A fold that read what it replaces, or a context's state, would not be a function of the tensors.
void check_constants(const Node& node, const EntryRecord& entry, const Manifest& manifest,
                     const std::vector<Source>& sources) {
  for (const VariantRecord& variant : entry.variants) {
    for (const ImplementationRecord& implementation : variant.implementations) {
      for (const StepRecord& step : implementation.steps) {
        for (const uint32_t index : step.module.constants) {
          if (sources[index] != Source::kFixed || manifest.constants[index].mutated) {
            node.error("a module of the entry reads constant '" + manifest.constants[index].name +
                       "', which is not fixed");
          }
        }
      }
    }
  }
}

void read_fold(const Node& node, const Manifest& manifest, std::vector<Source>* sources, WeightsRecord* out) {
  node.keys({"entry", "results"});
  FoldRecord& fold = out->fold.emplace();
  const Node name = node.at("entry");
  const std::string wanted = name.name();
  while (fold.entry < manifest.entries.size() && manifest.entries[fold.entry].name != wanted) ++fold.entry;
  if (fold.entry == manifest.entries.size()) name.error("there is no entry '" + wanted + "'");
  const EntryRecord& entry = manifest.entries[fold.entry];
  const Node results = node.at("results");
  if (results.size() != entry.outputs.size()) results.error("not as many as the entry has outputs");
  for (size_t i = 0; i < entry.outputs.size(); ++i) {
    read_result(results.at(i), entry.outputs[i], manifest, sources, &fold);
  }
  check_inputs(name, entry, *out, &fold);
  check_constants(name, entry, manifest, *sources);
}

// What has no bytes is what depends on the weights: all of it or, in an archive with weights, nothing.
void check_absent(const Node& constants, const Manifest& manifest, const std::vector<Source>& sources) {
  if (!manifest.code_only) return;
  for (size_t i = 0; i < sources.size(); ++i) {
    const bool is_fixed = sources[i] == Source::kFixed;
    if (manifest.constants[i].absent != is_fixed) continue;
    constants.at(i).error(is_fixed ? "has no bytes, but does not depend on the weights"
                                   : "has bytes, but others that depend on the weights have none");
  }
}

void read_replaceable(const Node& node, Manifest* out, std::vector<Source>* sources) {
  node.keys({"fold", "tensors"});
  WeightsRecord& weights = out->weights.emplace();
  const Node tensors = node.at("tensors");
  weights.tensors.resize(tensors.size());
  Unique names;
  for (size_t i = 0; i < weights.tensors.size(); ++i) {
    WeightRecord& tensor = weights.tensors[i];
    read_tensor(tensors.at(i), *out, &tensor);
    names.add(tensors.at(i), tensor.name);
    if (tensor.constant != WeightRecord::kNone) (*sources)[tensor.constant] = Source::kTensor;
  }
  const Node fold = node.at("fold");
  if (fold.kind() != json::Kind::kNull) read_fold(fold, *out, sources, &weights);
}

}  // namespace

void read_weights(const Node& node, const Node& constants, Manifest* out) {
  std::vector<Source> sources(out->constants.size(), Source::kFixed);
  if (node.kind() != json::Kind::kNull) read_replaceable(node, out, &sources);
  check_absent(constants, *out, sources);
}

}  // namespace aotpack::runtime
