#include "manifest.h"

#include <algorithm>
#include <limits>

#include "aotpack/module_abi.h"
#include "bytes.h"
#include "manifest_fields.h"
#include "manifest_spec.h"
#include "manifest_weights.h"
#include "status.h"
#include "strided.h"

namespace aotpack::runtime {
namespace {

constexpr int64_t kFormatVersion = 3;
constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

// The range [offset, offset + nbytes) of a file.
void check_range(const Node& node, const FileRecord& file, uint64_t offset, uint64_t nbytes) {
  uint64_t end;
  if (!checked_add(offset, nbytes, &end) || end > file.size) {
    node.error(format("bytes %llu and the %llu that follow are not all in '%s', which has %llu",
                      static_cast<unsigned long long>(offset), static_cast<unsigned long long>(nbytes),
                      file.path.c_str(), static_cast<unsigned long long>(file.size)));
  }
}

void read_files(const Node& list, Manifest* out) {
  out->files.resize(list.size());
  Unique paths;
  for (size_t i = 0; i < out->files.size(); ++i) {
    const Node node = list.at(i);
    node.keys({"path", "sha256", "size"});
    FileRecord& file = out->files[i];
    file.path = node.at("path").name();
    file.size = static_cast<uint64_t>(node.at("size").integer(0));
    file.digest = node.at("sha256").digest();
    paths.add(node, file.path);
  }
}

void read_constant(const Node& node, const Manifest& manifest, ConstantRecord* out) {
  node.keys({"dtype", "file", "mutated", "name", "nbytes", "offset", "role", "sha256", "shape", "sources", "stride"});
  out->name = node.at("name").name();
  static constexpr std::string_view kRoles[] = {"parameter", "buffer", "constant", "packed", "folded"};
  const std::string_view role = node.at("role").string();
  if (std::find(std::begin(kRoles), std::end(kRoles), role) == std::end(kRoles)) {
    node.at("role").error("unknown role '" + std::string(role) + "'");
  }
  const Node sources = node.at("sources");
  for (size_t i = 0; i < sources.size(); ++i) sources.at(i).string();
  out->dtype = read_dtype(node.at("dtype"));
  out->shape = read_sizes(node.at("shape"));
  out->stride = read_sizes(node.at("stride"));
  if (out->stride.size() != out->shape.size()) node.error("'shape' and 'stride' differ in length");
  out->file = read_file_index(node.at("file"), manifest, "weights/");
  out->offset = static_cast<uint64_t>(node.at("offset").integer(0));
  if (out->offset % AOTPACK_ALIGNMENT != 0) node.at("offset").error("not a multiple of 64");
  out->nbytes = static_cast<uint64_t>(node.at("nbytes").integer(0));
  check_range(node, manifest.files[out->file], out->offset, out->nbytes);
  uint64_t extent;
  if (!extent_of(out->shape, out->stride, &extent) || !checked_mul<uint64_t>(extent, out->dtype->size, &extent)) {
    node.error("shape and stride overflow");
  }
  if (extent > out->nbytes) {
    node.error(format("shape and stride reach over %llu bytes, nbytes is %llu", static_cast<unsigned long long>(extent),
                      static_cast<unsigned long long>(out->nbytes)));
  }
  out->digest = node.at("sha256").digest();
  out->mutated = node.at("mutated").boolean();
  const auto rank = static_cast<int32_t>(out->shape.size());
  if (out->mutated && !is_non_overlapping(out->shape.data(), out->stride.data(), rank)) {
    node.at("stride").error("overlapping, but the constant is mutated");
  }
}

void read_bounds(const Node& node, int64_t* min, int64_t* max) {
  *min = node.at("min").integer();
  const Node upper = node.at("max");
  *max = upper.kind() == json::Kind::kNull ? kMaxInt : upper.integer(*min);
}

uint32_t find_dim(const Node& node, const EntryRecord& entry) {
  const std::string_view name = node.string();
  for (size_t i = 0; i < entry.dims.size(); ++i) {
    if (entry.dims[i].name == name) return static_cast<uint32_t>(i);
  }
  node.error("there is no dim '" + std::string(name) + "'");
}

void read_dims(const Node& list, EntryRecord* out) {
  out->dims.resize(list.size());
  Unique names;
  for (size_t i = 0; i < out->dims.size(); ++i) {
    const Node node = list.at(i);
    node.keys({"max", "min", "multiple_of", "name"});
    DimRecord& dim = out->dims[i];
    dim.name = node.at("name").name();
    read_bounds(node, &dim.min, &dim.max);
    dim.multiple_of = node.at("multiple_of").integer(1);
    names.add(node, dim.name);
  }
}

SizeRecord read_size(const Node& node, const EntryRecord& entry, bool output) {
  SizeRecord size;
  if (node.kind() == json::Kind::kInt) {
    size.size = node.integer(0);
    return size;
  }
  if (output && node.kind() == json::Kind::kObject && node.value().find("expr") != nullptr) {
    node.keys({"code", "expr"});
    node.at("expr").string();
    size.kind = SizeRecord::Kind::kComputed;
    return size;
  }
  node.keys({"add", "dim", "mul"});
  size.kind = SizeRecord::Kind::kDim;
  size.dim = find_dim(node.at("dim"), entry);
  size.mul = node.at("mul").integer(1);
  // Bounded so that it can be negated and printed without a thought for overflow.
  constexpr int64_t kFar = int64_t{1} << 62;
  size.add = node.at("add").integer(-kFar, kFar);
  return size;
}

void read_value(const Node& node, const EntryRecord& entry, bool output, ValueRecord* out) {
  node.keys({"dim", "dtype", "mutated", "name", "number", "order", "shape"});
  out->name = node.at("name").name();
  out->dtype = read_dtype(node.at("dtype"));
  const Node shape = node.at("shape");
  const size_t rank = read_rank(shape);
  for (size_t i = 0; i < rank; ++i) out->shape.push_back(read_size(shape.at(i), entry, output));
  const Node order = node.at("order");
  if (order.size() != rank) order.error("not as long as the shape");
  uint32_t seen = 0;
  for (size_t i = 0; i < rank; ++i) {
    const auto dim = static_cast<uint32_t>(order.at(i).integer(0, static_cast<int64_t>(rank) - 1));
    if ((seen >> dim & 1) != 0) order.error("a dimension twice");
    seen |= 1u << dim;
    out->order.push_back(dim);
  }
  out->mutated = node.at("mutated").boolean();
  if (output && out->mutated) node.at("mutated").error("an output cannot be mutated");
}

std::vector<ValueRecord> read_values(const Node& list, const EntryRecord& entry, bool output) {
  std::vector<ValueRecord> values(list.size());
  Unique names;
  for (size_t i = 0; i < values.size(); ++i) {
    read_value(list.at(i), entry, output, &values[i]);
    names.add(list.at(i), values[i].name);
  }
  return values;
}

void read_module(const Node& node, const Manifest& manifest, ModuleRecord* out) {
  node.keys({"abi_version", "constants", "file", "imports", "kernels", "target"});
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

void read_variant(const Node& node, const Manifest& manifest, const EntryRecord& entry, VariantRecord* out) {
  node.keys({"checks", "guards", "modules", "name"});
  out->name = node.at("name").name();
  const Node guards = node.at("guards");
  for (size_t i = 0; i < guards.size(); ++i) {
    const Node guard = guards.at(i);
    guard.keys({"dim", "max", "min", "multiple_of"});
    GuardRecord& record = out->guards.emplace_back();
    record.dim = find_dim(guard.at("dim"), entry);
    read_bounds(guard, &record.min, &record.max);
    record.multiple_of = guard.at("multiple_of").integer(1);
  }
  const Node modules = node.at("modules");
  out->modules.resize(modules.size());
  if (out->modules.empty()) modules.error("is empty");
  Unique targets;
  for (size_t i = 0; i < out->modules.size(); ++i) {
    read_module(modules.at(i), manifest, &out->modules[i]);
    targets.add(modules.at(i), out->modules[i].target);
  }
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
  check_range(node, manifest.files[file], offset, nbytes);
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
  node.keys({"inputs", "outputs", "tolerance"});
  if (!(node.at("tolerance").number() >= 0)) node.at("tolerance").error("is negative");
  for (const bool output : {false, true}) {
    const Node list = node.at(output ? "outputs" : "inputs");
    const std::vector<ValueRecord>& values = output ? entry.outputs : entry.inputs;
    if (list.size() != values.size()) list.error("not as many tensors as the entry has");
    for (size_t i = 0; i < values.size(); ++i) check_golden_tensor(list.at(i), manifest, values[i], output);
  }
}

// Dims that some input determines; only those have a value in a call.
std::vector<bool> determined_dims(const EntryRecord& entry) {
  std::vector<bool> determined(entry.dims.size());
  for (const ValueRecord& value : entry.inputs) {
    for (const SizeRecord& size : value.shape) {
      if (size.kind == SizeRecord::Kind::kDim) determined[size.dim] = true;
    }
  }
  return determined;
}

void read_entry(const Node& node, const Manifest& manifest, EntryRecord* out) {
  node.keys({"dims", "goldens", "in_spec", "inputs", "name", "out_spec", "outputs", "variants"});
  out->name = node.at("name").name();
  read_dims(node.at("dims"), out);
  out->inputs = read_values(node.at("inputs"), *out, false);
  out->outputs = read_values(node.at("outputs"), *out, true);
  const Node variants = node.at("variants");
  out->variants.resize(variants.size());
  if (out->variants.empty()) variants.error("is empty");
  Unique names;
  for (size_t i = 0; i < out->variants.size(); ++i) {
    read_variant(variants.at(i), manifest, *out, &out->variants[i]);
    names.add(variants.at(i), out->variants[i].name);
  }
  const std::vector<bool> determined = determined_dims(*out);
  const auto check_determined = [&](uint32_t dim) {
    if (!determined[dim]) node.error("dim '" + out->dims[dim].name + "' is used but no input determines it");
  };
  for (const ValueRecord& value : out->outputs) {
    for (const SizeRecord& size : value.shape) {
      if (size.kind == SizeRecord::Kind::kDim) check_determined(size.dim);
    }
  }
  for (const VariantRecord& variant : out->variants) {
    for (const GuardRecord& guard : variant.guards) check_determined(guard.dim);
  }
  check_spec(node.at("in_spec"), out->inputs.size(), true);
  check_spec(node.at("out_spec"), out->outputs.size(), false);
  const Node goldens = node.at("goldens");
  for (size_t i = 0; i < goldens.size(); ++i) check_golden(goldens.at(i), manifest, *out);
}

}  // namespace

bool extent_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, uint64_t* out) noexcept {
  *out = 0;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  uint64_t extent = 1;
  for (size_t i = 0; i < shape.size(); ++i) {
    uint64_t reach;
    if (!checked_mul(static_cast<uint64_t>(shape[i] - 1), static_cast<uint64_t>(stride[i]), &reach) ||
        !checked_add(extent, reach, &extent)) {
      return false;
    }
  }
  *out = extent;
  return true;
}

Manifest parse_manifest(std::string_view text) {
  const json::Document document(text);
  const Node root(document.root());
  // The version first: a later version may well have other keys.
  if (root.at("format").string() != "aotpack") root.at("format").error("expected 'aotpack'");
  const int64_t version = root.at("format_version").integer();
  if (version != kFormatVersion) {
    fail(AOTPACK_UNSUPPORTED_VERSION, "archive format version %lld; this runtime reads version %lld",
         static_cast<long long>(version), static_cast<long long>(kFormatVersion));
  }
  root.keys({"constants", "entries", "files", "format", "format_version", "name", "producer", "report", "weights"});
  Manifest manifest;
  manifest.name = root.at("name").string();
  const Node producer = root.at("producer");
  producer.keys_of_strings();
  read_files(root.at("files"), &manifest);
  const Node constants = root.at("constants");
  manifest.constants.resize(constants.size());
  Unique constant_names;
  for (size_t i = 0; i < manifest.constants.size(); ++i) {
    const Node node = constants.at(i);
    read_constant(node, manifest, &manifest.constants[i]);
    constant_names.add(node, manifest.constants[i].name);
  }
  const Node entries = root.at("entries");
  manifest.entries.resize(entries.size());
  if (manifest.entries.empty()) entries.error("is empty");
  Unique entry_names;
  for (size_t i = 0; i < manifest.entries.size(); ++i) {
    const Node node = entries.at(i);
    read_entry(node, manifest, &manifest.entries[i]);
    entry_names.add(node, manifest.entries[i].name);
  }
  const Node report = root.at("report");
  if (report.kind() != json::Kind::kNull) read_file_index(report, manifest, "reports/");
  read_weights(root.at("weights"), &manifest);
  return manifest;
}

}  // namespace aotpack::runtime
