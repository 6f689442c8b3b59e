#include "manifest/node.h"

#include <algorithm>

#include "base/status.h"

namespace aotpack::runtime {

std::string Node::path() const {
  if (parent_ == nullptr) return "manifest";
  if (key_.data() != nullptr) return parent_->path() + "." + std::string(key_);
  return parent_->path() + format("[%zu]", index_);
}

void Node::error(const std::string& what) const { throw Error(AOTPACK_MALFORMED_ARCHIVE, path() + ": " + what); }

void Node::expect(json::Kind kind) const {
  if (value_->kind != kind) error(format("expected %s, got %s", json::kind_name(kind), json::kind_name(value_->kind)));
}

void Node::keys(std::initializer_list<std::string_view> wanted) const {
  expect(json::Kind::kObject);
  for (const std::string_view key : wanted) {
    if (value_->find(key) == nullptr) error("missing key '" + std::string(key) + "'");
  }
  if (value_->keys.size() == wanted.size()) return;
  for (const std::string_view key : value_->keys) {
    if (std::find(wanted.begin(), wanted.end(), key) == wanted.end()) error("unknown key '" + std::string(key) + "'");
  }
}

void Node::keys_of_strings() const {
  expect(json::Kind::kObject);
  for (const std::string_view key : value_->keys) at(key).string();
}

Node Node::at(std::string_view key) const {
  expect(json::Kind::kObject);
  const json::Value* child = value_->find(key);
  if (child == nullptr) error("missing key '" + std::string(key) + "'");
  return Node(*child, this, key, 0);
}

size_t Node::size() const {
  expect(json::Kind::kArray);
  return value_->items.size();
}

Node Node::at(size_t index) const {
  expect(json::Kind::kArray);
  return Node(value_->items.at(index), this, {}, index);
}

int64_t Node::integer(int64_t min, int64_t max) const {
  expect(json::Kind::kInt);
  if (value_->integer < min || value_->integer > max) {
    error(format("%lld is out of range [%lld, %lld]", static_cast<long long>(value_->integer),
                 static_cast<long long>(min), static_cast<long long>(max)));
  }
  return value_->integer;
}

double Node::number() const {
  if (value_->kind == json::Kind::kInt) return static_cast<double>(value_->integer);
  expect(json::Kind::kDouble);
  return value_->number;
}

bool Node::boolean() const {
  expect(json::Kind::kBool);
  return value_->boolean;
}

std::string_view Node::string() const {
  expect(json::Kind::kString);
  return value_->string;
}

std::string Node::name() const {
  const std::string_view text = string();
  if (text.empty()) error("is empty");
  if (text.find('\0') != std::string_view::npos) error("holds a zero character");
  return std::string(text);
}

Digest Node::digest() const {
  Digest digest;
  if (!from_hex(string(), &digest)) error("expected 64 lowercase hex digits");
  return digest;
}

}  // namespace aotpack::runtime
