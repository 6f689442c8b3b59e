#include "manifest/halves.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

namespace aotpack::runtime {
namespace {

constexpr int64_t kNoTensor = -1;

std::string backward_name(const std::string& forward) {
  return forward == "forward" ? "backward" : forward + "_backward";
}

// The leaves of a spec in order: indices of tensors, kNoTensor for constants.
void add_leaves(const Node& spec, std::vector<int64_t>* out) {
  const std::string_view kind = spec.at("kind").string();
  if (kind == "tensor") {
    out->push_back(spec.at("index").integer());
  } else if (kind == "value" || kind == "float") {
    out->push_back(kNoTensor);
  } else {
    const Node items = spec.at("items");
    for (size_t i = 0; i < items.size(); ++i) add_leaves(items.at(i), out);
  }
}

bool is_dict(const Node& spec) { return spec.at("kind").string() == "dict"; }

bool has_text(const Node& list, size_t index, std::string_view text) {
  const Node item = list.at(index);
  return item.kind() == json::Kind::kString && item.string() == text;
}

// A dict of tensors whose keys are indices below `count`.
bool read_indices(const Node& spec, size_t count, std::vector<uint32_t>* out) {
  if (!is_dict(spec)) return false;
  const Node items = spec.at("items");
  const Node keys = spec.at("keys");
  for (size_t i = 0; i < keys.size(); ++i) {
    const Node key = keys.at(i);
    if (key.kind() != json::Kind::kInt || items.at(i).at("kind").string() != "tensor") return false;
    if (key.integer() < 0 || key.integer() >= static_cast<int64_t>(count)) return false;
    out->push_back(static_cast<uint32_t>(key.integer()));
  }
  return true;
}

// Whether all are tensors, from `first` on, in order.
bool counts_up(const std::vector<int64_t>& leaves, size_t first) {
  for (size_t i = 0; i < leaves.size(); ++i) {
    if (leaves[i] != static_cast<int64_t>(first + i)) return false;
  }
  return true;
}

bool read_backward(const Node& out_spec, const Node& in_spec, const EntryRecord& forward, const EntryRecord& backward,
                   BackwardRecord* out) {
  const Node names = in_spec.at("names");
  if (names.size() != 2 || !has_text(names, 0, "saved") || !has_text(names, 1, "output_gradients")) return false;
  const Node args = in_spec.at("args");
  const Node saved = args.at(0);
  if (!is_dict(saved)) return false;
  const Node parts = saved.at("keys");
  if (parts.size() != 2 || !has_text(parts, 0, "outputs") || !has_text(parts, 1, "inputs")) return false;
  const Node items = saved.at("items");
  if (!read_indices(items.at(0), forward.outputs.size(), &out->outputs)) return false;
  if (!read_indices(items.at(1), forward.inputs.size(), &out->inputs)) return false;
  std::vector<int64_t> kept;
  add_leaves(saved, &kept);
  std::vector<int64_t> results;
  add_leaves(out_spec, &results);
  std::vector<int64_t> gradients;
  add_leaves(args.at(1), &gradients);
  if (!counts_up(kept, 0) || results.size() != gradients.size()) return false;
  size_t next = kept.size();
  for (size_t i = 0; i < results.size(); ++i) {
    if (gradients[i] == kNoTensor) continue;
    if (results[i] == kNoTensor || gradients[i] != static_cast<int64_t>(next++)) return false;
    out->gradients.push_back(static_cast<uint32_t>(results[i]));
  }
  results.erase(std::remove(results.begin(), results.end(), kNoTensor), results.end());
  out->num_results = static_cast<uint32_t>(results.size());
  return counts_up(results, 0) && next == backward.inputs.size();
}

}  // namespace

void find_backwards(const Node& entries, Manifest* manifest) {
  std::unordered_map<std::string, size_t> by_name;
  for (size_t i = 0; i < manifest->entries.size(); ++i) by_name.emplace(manifest->entries[i].name, i);
  for (size_t i = 0; i < manifest->entries.size(); ++i) {
    EntryRecord& forward = manifest->entries[i];
    const auto found = by_name.find(backward_name(forward.name));
    if (found == by_name.end()) continue;
    const EntryRecord& backward = manifest->entries[found->second];
    const Node first = entries.at(i);
    const Node second = entries.at(found->second);
    BackwardRecord record;
    record.entry = static_cast<uint32_t>(found->second);
    if (read_backward(first.at("out_spec"), second.at("in_spec"), forward, backward, &record)) {
      forward.backward = std::move(record);
    }
  }
}

}  // namespace aotpack::runtime
