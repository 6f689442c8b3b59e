#include "manifest/manifest.h"

#include <algorithm>

#include "aotpack/module_abi.h"
#include "base/bytes.h"
#include "base/status.h"
#include "base/strided.h"
#include "manifest/entry.h"
#include "manifest/fields.h"
#include "manifest/halves.h"
#include "manifest/implementation.h"
#include "manifest/weights.h"

namespace aotpack::runtime {
namespace {

constexpr int64_t kOldestVersion = 3;
constexpr int64_t kFormatVersion = 9;

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

void read_devices(const Node& list, Manifest* out) {
  out->devices.resize(list.size());
  if (out->devices.empty()) list.error("is empty");
  Unique names;
  for (size_t i = 0; i < out->devices.size(); ++i) {
    out->devices[i] = list.at(i).name();
    names.add(list.at(i), out->devices[i]);
  }
}

// For people: only its place is checked.
void read_report(const Node& node, const Manifest& manifest) {
  if (node.kind() != json::Kind::kNull) read_file_index(node, manifest, "reports/");
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
  out->nbytes = static_cast<uint64_t>(node.at("nbytes").integer(0));
  out->absent = manifest.format_version >= Manifest::kCodeOnlyVersion && node.at("file").kind() == json::Kind::kNull;
  if (out->absent) {
    for (const char* key : {"offset", "sha256"}) {
      if (node.at(key).kind() != json::Kind::kNull) node.at(key).error("expected null, as 'file' is");
    }
  } else {
    out->file = read_file_index(node.at("file"), manifest, "weights/");
    out->offset = static_cast<uint64_t>(node.at("offset").integer(0));
    if (out->offset % AOTPACK_ALIGNMENT != 0) node.at("offset").error("not a multiple of 64");
    check_byte_range(node, manifest.files[out->file], out->offset, out->nbytes);
    out->digest = node.at("sha256").digest();
  }
  uint64_t extent;
  if (!extent_of(out->shape, out->stride, &extent) || !checked_mul<uint64_t>(extent, out->dtype->size, &extent)) {
    node.error("shape and stride overflow");
  }
  if (extent > out->nbytes || (out->absent && extent != out->nbytes)) {
    node.error(format("shape and stride reach over %llu bytes, nbytes is %llu", static_cast<unsigned long long>(extent),
                      static_cast<unsigned long long>(out->nbytes)));
  }
  out->mutated = node.at("mutated").boolean();
  out->trained = out->mutated && (role == "parameter" || out->name.starts_with("optimizer."));
  const auto rank = static_cast<int32_t>(out->shape.size());
  if (out->mutated && !is_non_overlapping(out->shape.data(), out->stride.data(), rank)) {
    node.at("stride").error("overlapping, but the constant is mutated");
  }
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

size_t extent_bytes(const ConstantRecord& record) noexcept {
  uint64_t extent = 0;
  (void)extent_of(record.shape, record.stride, &extent);  // the reader has checked that it fits
  return static_cast<size_t>(extent * record.dtype->size);
}

Manifest parse_manifest(std::string_view text) {
  const json::Document document(text);
  const Node root(document.root());
  // The version first: a later version may well have other keys.
  if (root.at("format").string() != "aotpack") root.at("format").error("expected 'aotpack'");
  const int64_t version = root.at("format_version").integer();
  if (version < kOldestVersion || version > kFormatVersion) {
    fail(AOTPACK_UNSUPPORTED_VERSION, "archive format version %lld; this runtime reads versions %lld to %lld",
         static_cast<long long>(version), static_cast<long long>(kOldestVersion),
         static_cast<long long>(kFormatVersion));
  }
  if (version < Manifest::kStepsVersion) {
    root.keys({"constants", "entries", "files", "format", "format_version", "name", "producer", "report", "weights"});
  } else if (version < Manifest::kDescriptionVersion) {
    root.keys({"constants", "devices", "entries", "files", "format", "format_version", "name", "producer", "report",
               "weights"});
  } else {
    root.keys({"constants", "description", "devices", "entries", "files", "format", "format_version", "name",
               "producer", "report", "weights"});
  }
  Manifest manifest;
  manifest.format_version = version;
  manifest.name = root.at("name").string();
  const Node producer = root.at("producer");
  producer.keys_of_strings();
  if (version < Manifest::kStepsVersion) {
    manifest.devices = {"main"};
  } else {
    read_devices(root.at("devices"), &manifest);
  }
  read_files(root.at("files"), &manifest);
  const Node constants = root.at("constants");
  manifest.constants.resize(constants.size());
  Unique constant_names;
  for (size_t i = 0; i < manifest.constants.size(); ++i) {
    const Node node = constants.at(i);
    read_constant(node, manifest, &manifest.constants[i]);
    constant_names.add(node, manifest.constants[i].name);
    manifest.code_only = manifest.code_only || manifest.constants[i].absent;
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
  find_backwards(entries, &manifest);
  check_state(entries, manifest);
  read_report(root.at("report"), manifest);
  if (version >= Manifest::kDescriptionVersion) read_report(root.at("description"), manifest);
  read_weights(root.at("weights"), constants, &manifest);
  return manifest;
}

}  // namespace aotpack::runtime
