// A JSON value together with its path, for strict reading with errors that say where.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "manifest/json.h"

namespace aotpack::runtime {

// Cheap to copy; the path is spelled out only when an error needs it. A node refers to its parent, so parents stay on
// the stack while their children are read.
class Node {
 public:
  explicit Node(const json::Value& value) noexcept : value_(&value) {}

  const json::Value& value() const noexcept { return *value_; }
  json::Kind kind() const noexcept { return value_->kind; }

  // Throws MALFORMED_ARCHIVE: "manifest.entries[0].name: <what>".
  [[noreturn]] void error(const std::string& what) const;

  // An object with exactly these keys.
  void keys(std::initializer_list<std::string_view> wanted) const;
  Node at(std::string_view key) const;  // of an object
  // An object of any keys whose values are strings.
  void keys_of_strings() const;

  size_t size() const;  // of a list
  Node at(size_t index) const;

  int64_t integer(int64_t min = std::numeric_limits<int64_t>::min(),
                  int64_t max = std::numeric_limits<int64_t>::max()) const;
  double number() const;
  bool boolean() const;
  std::string_view string() const;
  // A string that C callers can be given: no zero byte, not empty.
  std::string name() const;
  Digest digest() const;

 private:
  Node(const json::Value& value, const Node* parent, std::string_view key, size_t index) noexcept
      : value_(&value), parent_(parent), key_(key), index_(index) {}

  void expect(json::Kind kind) const;
  std::string path() const;

  const json::Value* value_;
  const Node* parent_ = nullptr;
  std::string_view key_;
  size_t index_ = 0;  // where key_ has no data
};

}  // namespace aotpack::runtime
