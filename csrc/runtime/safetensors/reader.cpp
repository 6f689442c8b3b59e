#include "safetensors/reader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/status.h"

namespace aotpack::runtime {
namespace {

FileMap open(const std::string& path) try {
  return FileMap(path.c_str(), FileMap::Mode::kMap);
} catch (const Error& error) {
  throw Error(error.code(), path + ": " + error.message());
}

std::string quoted(std::string_view name) { return "'" + std::string(name) + "'"; }

// A member of an object of any form; NULL when there is none.
const json::Value* member(const json::Value& object, std::string_view key) noexcept {
  const auto at = std::find(object.keys.begin(), object.keys.end(), key);
  return at != object.keys.end() ? &object.items[static_cast<size_t>(at - object.keys.begin())] : nullptr;
}

bool is_size(const json::Value& value) noexcept { return value.kind == json::Kind::kInt && value.integer >= 0; }

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path), file_(open(path)) {
  parse(read_header());
  check_data();
}

void SafetensorsReader::malformed(const std::string& what) const {
  throw Error(AOTPACK_INVALID_ARGUMENT, path_ + ": " + what);
}

void SafetensorsReader::read_bytes(uint64_t offset, void* out, uint64_t bytes) const {
  try {
    file_.read(offset, std::span<uint8_t>(static_cast<uint8_t*>(out), static_cast<size_t>(bytes)));
  } catch (const Error& error) {
    if (error.code() == AOTPACK_TRUNCATED_ARCHIVE) malformed("the file became shorter while it was read");
    throw Error(error.code(), path_ + ": " + error.message());
  }
}

std::string SafetensorsReader::read_header() {
  const uint64_t size = file_.size();
  uint8_t prefix[8];
  if (size < sizeof prefix) malformed(format("%llu bytes are not a safetensors file", (unsigned long long)size));
  read_bytes(0, prefix, sizeof prefix);
  const auto length = load<uint64_t>(prefix);
  if (length > kMaxSafetensorsHeader) {
    malformed(format("a header of %llu bytes; at most %llu are allowed", (unsigned long long)length,
                     (unsigned long long)kMaxSafetensorsHeader));
  }
  if (length > size - sizeof prefix) {
    malformed(format("a header of %llu bytes in a file of %llu", (unsigned long long)length, (unsigned long long)size));
  }
  std::string header(static_cast<size_t>(length), '\0');
  read_bytes(sizeof prefix, header.data(), length);
  start_ = sizeof prefix + length;
  return header;
}

void SafetensorsReader::parse(const std::string& text) {
  // The format asks for this first byte.
  if (text.empty() || text.front() != '{') malformed("the header does not begin with an object");
  try {
    const json::Document document(text, json::Form::kAny);
    const json::Value& root = document.root();
    for (size_t i = 0; i < root.keys.size(); ++i) {
      if (root.keys[i] == kSafetensorsMetadata) {
        add_metadata(root.items[i]);
      } else {
        add_tensor(root.keys[i], root.items[i]);
      }
    }
  } catch (const Error& error) {
    if (error.code() != AOTPACK_MALFORMED_ARCHIVE) throw;
    malformed("the header is malformed: " + error.message());
  }
}

void SafetensorsReader::add_metadata(const json::Value& value) {
  const bool strings = std::all_of(value.items.begin(), value.items.end(),
                                   [](const json::Value& item) { return item.kind == json::Kind::kString; });
  if (value.kind != json::Kind::kObject || !strings) malformed("__metadata__ must be an object of strings");
  for (size_t i = 0; i < value.keys.size(); ++i) metadata_.emplace(value.keys[i], value.items[i].string);
}

void SafetensorsReader::add_tensor(std::string_view name, const json::Value& value) {
  const std::string what = "tensor " + quoted(name);
  const json::Value* dtype = value.kind == json::Kind::kObject ? member(value, "dtype") : nullptr;
  const json::Value* shape = dtype != nullptr ? member(value, "shape") : nullptr;
  const json::Value* offsets = shape != nullptr ? member(value, "data_offsets") : nullptr;
  if (offsets == nullptr || value.keys.size() != 3)
    malformed(what + " must have the keys dtype, shape and data_offsets");

  StoredTensor tensor;
  tensor.dtype = dtype->kind == json::Kind::kString ? safetensors_dtype(dtype->string) : nullptr;
  if (tensor.dtype == nullptr) malformed(what + " has an unknown dtype, " + quoted(dtype->string));
  if (shape->kind != json::Kind::kArray || !std::all_of(shape->items.begin(), shape->items.end(), is_size)) {
    malformed(what + " has a shape that is not a list of sizes");
  }
  int64_t bytes = tensor.dtype->size;
  bool empty = false;
  bool overflows = false;
  for (const json::Value& size : shape->items) {
    tensor.shape.push_back(size.integer);
    empty = empty || size.integer == 0;
    overflows = overflows || (size.integer != 0 && !checked_mul(bytes, size.integer, &bytes));
  }
  // An empty tensor has no bytes, whatever its other sizes are.
  if (empty) {
    bytes = 0;
  } else if (overflows) {
    malformed(what + " has a shape of more bytes than 63 bits count");
  }
  if (offsets->kind != json::Kind::kArray || offsets->items.size() != 2 || !is_size(offsets->items[0]) ||
      !is_size(offsets->items[1]) || offsets->items[0].integer > offsets->items[1].integer) {
    malformed(what + " has data_offsets that are not two numbers in order");
  }
  tensor.begin = static_cast<uint64_t>(offsets->items[0].integer);
  tensor.end = static_cast<uint64_t>(offsets->items[1].integer);
  if (tensor.end - tensor.begin != static_cast<uint64_t>(bytes)) {
    malformed(what + format(" has %llu bytes; dtype and shape make %lld",
                            (unsigned long long)(tensor.end - tensor.begin), (long long)bytes));
  }
  tensors_.emplace(name, std::move(tensor));
}

void SafetensorsReader::check_data() const {
  std::vector<std::pair<const std::string*, const StoredTensor*>> sorted;
  for (const auto& [name, tensor] : tensors_) sorted.emplace_back(&name, &tensor);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  const uint64_t size = file_.size() - start_;
  uint64_t at = 0;
  for (const auto& [name, tensor] : sorted) {
    if (tensor->begin > at) {
      malformed(format("no tensor has the bytes %llu to %llu of the data", (unsigned long long)at,
                       (unsigned long long)tensor->begin));
    }
    if (tensor->begin < at) malformed("the data of tensor " + quoted(*name) + " begins within that of another");
    if (tensor->end > size) {
      malformed("the data of tensor " + quoted(*name) +
                format(" ends at %llu, the file's at %llu", (unsigned long long)tensor->end, (unsigned long long)size));
    }
    at = tensor->end;
  }
  if (at != size) malformed(format("%llu bytes follow the last tensor", (unsigned long long)(size - at)));
}

void SafetensorsReader::read(const StoredTensor& tensor, void* out) const {
  read_bytes(start_ + tensor.begin, out, tensor.end - tensor.begin);
}

}  // namespace aotpack::runtime
