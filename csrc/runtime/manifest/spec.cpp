#include "manifest/spec.h"

#include <algorithm>
#include <vector>

namespace aotpack::runtime {
namespace {

// Walks a spec and counts how often it names each tensor.
class SpecChecker {
 public:
  explicit SpecChecker(size_t num_tensors) : counts_(num_tensors) {}

  void check(const Node& spec, bool call_allowed) {
    const std::string_view kind = spec.at("kind").string();
    if (kind == "tensor") {
      spec.keys({"index", "kind"});
      const Node index = spec.at("index");
      if (index.integer(0) >= static_cast<int64_t>(counts_.size())) index.error("there is no such tensor");
      ++counts_[static_cast<size_t>(index.integer())];
    } else if (kind == "value") {
      spec.keys({"kind", "value"});
      const Node value = spec.at("value");
      if (value.kind() == json::Kind::kArray || value.kind() == json::Kind::kObject) {
        value.error("expected null, a boolean, a number or a string");
      }
    } else if (kind == "float") {
      spec.keys({"kind", "value"});
      const Node value = spec.at("value");
      const std::string_view text = value.string();
      if (text != "inf" && text != "-inf" && text != "nan") value.error("expected 'inf', '-inf' or 'nan'");
    } else if (kind == "tuple" || kind == "list") {
      spec.keys({"items", "kind"});
      check_items(spec.at("items"));
    } else if (kind == "dict") {
      spec.keys({"items", "keys", "kind"});
      check_keyed(spec, /*ints_allowed=*/true);
    } else if (kind == "namedtuple" || kind == "dataclass") {
      spec.keys({"items", "keys", "kind", "type"});
      check_type(spec.at("type"));
      check_keyed(spec);
    } else if (kind == "call" && call_allowed) {
      check_call(spec);
    } else {
      spec.at("kind").error(kind == "call" ? "a call is only possible at the root of in_spec" : "unknown kind of spec");
    }
  }

  // Each tensor of a call comes from one place in its arguments.
  void check_each_once(const Node& spec) const {
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] != 1) {
        spec.error("input " + std::to_string(i) + " appears " + std::to_string(counts_[i]) + " times instead of once");
      }
    }
  }

 private:
  void check_items(const Node& items) {
    const size_t count = items.size();
    for (size_t i = 0; i < count; ++i) check(items.at(i), false);
  }

  // `keys` and `items` of the same length; the keys differ. `ints_allowed`: of a dict they may be ints too.
  void check_keyed(const Node& spec, bool ints_allowed = false) {
    const Node keys = spec.at("keys");
    const Node items = spec.at("items");
    if (keys.size() != items.size()) spec.error("'keys' and 'items' differ in length");
    std::vector<std::string_view> names;
    std::vector<int64_t> ints;
    for (size_t i = 0; i < keys.size(); ++i) {
      const Node key = keys.at(i);
      if (ints_allowed && key.kind() == json::Kind::kInt) {
        ints.push_back(key.integer());
      } else {
        names.push_back(key.string());
      }
    }
    check_unique(keys, std::move(names));
    std::sort(ints.begin(), ints.end());
    const auto twice = std::adjacent_find(ints.begin(), ints.end());
    if (twice != ints.end()) keys.error("the key " + std::to_string(*twice) + " appears twice");
    check_items(items);
  }

  void check_call(const Node& spec) {
    spec.keys({"args", "kind", "kwargs", "names"});
    const Node args = spec.at("args");
    const Node names = spec.at("names");
    const Node kwargs = spec.at("kwargs");
    kwargs.keys({"items", "keys"});
    if (names.size() != args.size()) spec.error("'args' and 'names' differ in length");
    check_items(args);
    check_keyed(kwargs);
    std::vector<std::string_view> all;
    for (size_t i = 0; i < names.size(); ++i) {
      if (names.at(i).kind() != json::Kind::kNull) all.push_back(names.at(i).string());
    }
    const Node keys = kwargs.at("keys");
    for (size_t i = 0; i < keys.size(); ++i) all.push_back(keys.at(i).string());
    check_unique(names, std::move(all));
  }

  static void check_unique(const Node& where, std::vector<std::string_view> names) {
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) where.error("the name '" + std::string(*twice) + "' appears twice");
  }

  static void check_type(const Node& type) {
    const std::string_view text = type.string();
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
      type.error("expected \"module:QualName\"");
    }
  }

  std::vector<uint32_t> counts_;
};

}  // namespace

void check_spec(const Node& spec, size_t num_tensors, bool call_allowed) {
  SpecChecker checker(num_tensors);
  if (call_allowed && spec.at("kind").string() != "call") spec.at("kind").error("expected a call");
  checker.check(spec, call_allowed);
  if (call_allowed) checker.check_each_once(spec);
}

}  // namespace aotpack::runtime
