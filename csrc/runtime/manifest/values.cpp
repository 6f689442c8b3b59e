#include "manifest/values.h"

#include <cmath>
#include <limits>

#include "manifest/fields.h"

namespace aotpack::runtime {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

// GuardRecord, DimRecord.
template <typename Record>
void read_bounds(const Node& node, Record* out) {
  out->min = node.at("min").integer();
  const Node upper = node.at("max");
  out->max = upper.kind() == json::Kind::kNull ? kMaxInt : upper.integer(out->min);
  out->multiple_of = node.at("multiple_of").integer(1);
}

uint32_t find_dim(const Node& node, std::string_view name, const EntryRecord& entry) {
  const auto found = entry.dim_by_name.find(std::string(name));
  if (found == entry.dim_by_name.end()) node.error("there is no dim '" + std::string(name) + "'");
  return found->second;
}

const char* add_item(const Node& item, const EntryRecord& entry, CodeBuilder* builder) {
  switch (item.kind()) {
    case json::Kind::kInt:
      return builder->push(item.integer());
    case json::Kind::kBool:
      return builder->push(item.boolean());
    case json::Kind::kObject: {
      item.keys({"float"});
      const double number = item.at("float").number();
      return std::isfinite(number) ? builder->push(number) : "not finite";
    }
    case json::Kind::kString: {
      const std::string_view text = item.string();
      if (text.substr(0, 1) != "$") return builder->apply(text);
      return builder->push_dim(find_dim(item, text.substr(1), entry));
    }
    default:
      return "expected an integer, a boolean, a string or an object with a float";
  }
}

Code read_code(const Node& list, const EntryRecord& entry, CodeType wanted) {
  CodeBuilder builder;
  const size_t count = list.size();
  for (size_t i = 0; i < count; ++i) {
    const Node item = list.at(i);
    if (const char* problem = add_item(item, entry, &builder)) item.error(problem);
  }
  Code code;
  if (const char* problem = builder.finish(wanted, &code)) list.error(problem);
  return code;
}

// `data`: whether it may come out of the data.
SizeRecord read_size(const Node& node, const EntryRecord& entry, bool data) {
  SizeRecord size;
  if (node.kind() == json::Kind::kInt) {
    size.size = node.integer(0);
    return size;
  }
  if (node.kind() == json::Kind::kObject && node.value().find("expr") != nullptr) {
    node.keys({"code", "expr"});
    size.text = node.at("expr").name();
    const Node code = node.at("code");
    if (code.kind() != json::Kind::kNull) {
      size.kind = SizeRecord::Kind::kCode;
      size.code = read_code(code, entry, CodeType::kInt);
    } else {
      if (!data) code.error("only sizes of outputs and of values between steps may come out of the data");
      size.kind = SizeRecord::Kind::kData;
    }
    return size;
  }
  node.keys({"add", "dim", "mul"});
  size.kind = SizeRecord::Kind::kDim;
  size.dim = find_dim(node.at("dim"), node.at("dim").string(), entry);
  size.mul = node.at("mul").integer(1);
  // Bounded so that it can be negated and printed without a thought for overflow.
  constexpr int64_t kFar = int64_t{1} << 62;
  size.add = node.at("add").integer(-kFar, kFar);
  return size;
}

void read_number(const Node& node, const EntryRecord& entry, bool output, ValueRecord* out) {
  const Node number = node.at("number");
  const Node dim = node.at("dim");
  if (number.kind() != json::Kind::kNull) {
    static constexpr struct {
      std::string_view name;
      aotpack_number number;
      std::string_view dtype;
    } kNumbers[] = {
        {"int", AOTPACK_NUMBER_INT, "int64"},
        {"float", AOTPACK_NUMBER_FLOAT, "float64"},
        {"bool", AOTPACK_NUMBER_BOOL, "bool"},
    };
    for (const auto& known : kNumbers) {
      if (number.string() != known.name) continue;
      out->number = known.number;
      if (out->dtype->name != known.dtype || !out->shape.empty()) {
        number.error("a number of this kind is " + std::string(known.dtype) + " of rank 0");
      }
    }
    if (out->number == AOTPACK_NUMBER_NONE) number.error("expected 'int', 'float' or 'bool'");
    if (out->mutated) node.at("mutated").error("a number cannot be mutated");
  }
  if (dim.kind() == json::Kind::kNull) return;
  if (output || out->number != AOTPACK_NUMBER_INT) dim.error("only an input that is an int gives a dim");
  if (dim.kind() != json::Kind::kObject) {
    out->dim = find_dim(dim, dim.string(), entry);
    return;
  }
  out->formula = read_size(dim, entry, output);
  if (out->formula->is_plain_dim()) dim.error("a plain dim is given by its name");
}

// What every value has, but for its device. `data`: whether sizes may come out of the data.
void read_tensor(const Node& node, const EntryRecord& entry, bool data, ValueRecord* out) {
  out->name = node.at("name").name();
  out->dtype = read_dtype(node.at("dtype"));
  const Node shape = node.at("shape");
  const size_t rank = read_rank(shape);
  for (size_t i = 0; i < rank; ++i) out->shape.push_back(read_size(shape.at(i), entry, data));
  const Node order = node.at("order");
  if (order.size() != rank) order.error("not as long as the shape");
  uint32_t seen = 0;
  for (size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<uint32_t>(order.at(i).integer(0, static_cast<int64_t>(rank) - 1));
    if ((seen >> dim & 1) != 0) order.error("a dimension twice");
    seen |= 1u << dim;
    out->order.push_back(dim);
  }
}

void read_value(const Node& node, const Manifest& manifest, const EntryRecord& entry, bool output, ValueRecord* out) {
  const bool has_device = manifest.format_version >= Manifest::kStepsVersion;
  if (has_device) {
    node.keys({"device", "dim", "dtype", "mutated", "name", "number", "order", "shape"});
  } else {
    node.keys({"dim", "dtype", "mutated", "name", "number", "order", "shape"});
  }
  read_tensor(node, entry, output, out);
  out->mutated = node.at("mutated").boolean();
  if (output && out->mutated) node.at("mutated").error("an output cannot be mutated");
  read_number(node, entry, output, out);
  const bool is_number = out->number != AOTPACK_NUMBER_NONE;
  out->device = has_device ? read_device(node.at("device"), manifest) : is_number ? kHostDevice : 0;
  if (is_number && out->device != kHostDevice) node.at("device").error("a number is in memory of the host: null");
}

// Dims that some input determines; only those have a value in a call.
std::vector<bool> determined_dims(const EntryRecord& entry) {
  std::vector<bool> determined(entry.dims.size());
  for (const ValueRecord& value : entry.inputs) {
    if (value.dim != ValueRecord::kNoDim) determined[value.dim] = true;
    for (const SizeRecord& size : value.shape) {
      if (size.kind == SizeRecord::Kind::kDim) determined[size.dim] = true;
    }
  }
  return determined;
}

}  // namespace

void read_dims(const Node& list, EntryRecord* out) {
  out->dims.resize(list.size());
  Unique names;
  for (size_t i = 0; i < out->dims.size(); ++i) {
    const Node node = list.at(i);
    node.keys({"max", "min", "multiple_of", "name"});
    DimRecord& dim = out->dims[i];
    dim.name = node.at("name").name();
    read_bounds(node, &dim);
    names.add(node, dim.name);
    out->dim_by_name.emplace(dim.name, static_cast<uint32_t>(i));
  }
}

std::vector<ValueRecord> read_values(const Node& list, const Manifest& manifest, const EntryRecord& entry,
                                     bool output) {
  std::vector<ValueRecord> values(list.size());
  Unique names;
  for (size_t i = 0; i < values.size(); ++i) {
    read_value(list.at(i), manifest, entry, output, &values[i]);
    names.add(list.at(i), values[i].name);
  }
  return values;
}

std::vector<ValueRecord> read_intermediates(const Node& list, const Manifest& manifest, const EntryRecord& entry) {
  std::vector<ValueRecord> values(list.size());
  Unique names;
  for (size_t i = 0; i < values.size(); ++i) {
    const Node node = list.at(i);
    node.keys({"device", "dtype", "name", "order", "shape"});
    read_tensor(node, entry, true, &values[i]);
    values[i].device = read_device(node.at("device"), manifest);
    names.add(node, values[i].name);
  }
  return values;
}

GuardRecord read_guard(const Node& node, const EntryRecord& entry) {
  node.keys({"dim", "max", "min", "multiple_of"});
  GuardRecord guard;
  guard.dim = find_dim(node.at("dim"), node.at("dim").string(), entry);
  read_bounds(node, &guard);
  return guard;
}

CheckRecord read_check(const Node& node, const EntryRecord& entry) {
  node.keys({"code", "text"});
  return {node.at("text").name(), read_code(node.at("code"), entry, CodeType::kBool)};
}

void check_determined(const Node& node, const EntryRecord& entry) {
  const std::vector<bool> determined = determined_dims(entry);
  const auto use = [&](uint32_t dim) {
    if (!determined[dim]) node.error("dim '" + entry.dims[dim].name + "' is used but no input determines it");
  };
  const auto use_all = [&](const Code& code) {
    for (const uint32_t dim : code.dims()) use(dim);
  };
  const auto use_size = [&](const SizeRecord& size) {
    if (size.kind == SizeRecord::Kind::kDim) use(size.dim);
    use_all(size.code);
  };
  const auto use_values = [&](const std::vector<ValueRecord>& values) {
    for (const ValueRecord& value : values) {
      for (const SizeRecord& size : value.shape) use_size(size);
      if (value.formula) use_size(*value.formula);
    }
  };
  use_values(entry.inputs);
  use_values(entry.outputs);
  for (const VariantRecord& variant : entry.variants) {
    for (const ImplementationRecord& implementation : variant.implementations) use_values(implementation.values);
    for (const GuardRecord& guard : variant.guards) use(guard.dim);
    for (const CheckRecord& check : variant.checks) use_all(check.code);
  }
  // Sizes are not negative, numbers may be.
  std::vector<bool> is_number(entry.dims.size());
  for (const ValueRecord& value : entry.inputs) {
    if (value.dim != ValueRecord::kNoDim) is_number[value.dim] = true;
  }
  const Node dims = node.at("dims");
  for (size_t i = 0; i < entry.dims.size(); ++i) {
    const Node dim = dims.at(i);
    if (entry.dims[i].min < 0 && !is_number[i]) dim.at("min").error("negative, but no int gives the dim");
  }
}

}  // namespace aotpack::runtime
