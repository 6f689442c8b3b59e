#include "manifest_spec.h"

namespace aotpack::runtime {
namespace {

void check_items(const Node& items, size_t num_tensors) {
  const size_t count = items.size();
  for (size_t i = 0; i < count; ++i) check_spec(items.at(i), num_tensors, false);
}

// `keys` and `items` of the same length.
void check_keyed(const Node& spec, size_t num_tensors) {
  const Node keys = spec.at("keys");
  const Node items = spec.at("items");
  for (size_t i = 0; i < keys.size(); ++i) keys.at(i).string();
  if (keys.size() != items.size()) spec.error("'keys' and 'items' differ in length");
  check_items(items, num_tensors);
}

void check_call(const Node& spec, size_t num_tensors) {
  spec.keys({"args", "kind", "kwargs", "names"});
  const Node args = spec.at("args");
  const Node names = spec.at("names");
  check_items(args, num_tensors);
  for (size_t i = 0; i < names.size(); ++i) {
    const Node name = names.at(i);
    if (name.kind() != json::Kind::kNull) name.string();
  }
  if (names.size() != args.size()) spec.error("'args' and 'names' differ in length");
  const Node kwargs = spec.at("kwargs");
  kwargs.keys({"items", "keys"});
  check_keyed(kwargs, num_tensors);
}

}  // namespace

void check_spec(const Node& spec, size_t num_tensors, bool call_allowed) {
  const std::string_view kind = spec.at("kind").string();
  if (kind == "tensor") {
    spec.keys({"index", "kind"});
    const Node index = spec.at("index");
    if (index.integer(0) >= static_cast<int64_t>(num_tensors)) index.error("there is no such tensor");
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
    check_items(spec.at("items"), num_tensors);
  } else if (kind == "dict") {
    spec.keys({"items", "keys", "kind"});
    check_keyed(spec, num_tensors);
  } else if (kind == "namedtuple" || kind == "dataclass") {
    spec.keys({"items", "keys", "kind", "type"});
    spec.at("type").string();
    check_keyed(spec, num_tensors);
  } else if (kind == "call") {
    if (!call_allowed) spec.error("a call is only possible at the root of in_spec");
    check_call(spec, num_tensors);
  } else {
    spec.at("kind").error("unknown kind of spec");
  }
}

}  // namespace aotpack::runtime
