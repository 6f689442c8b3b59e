#include "manifest/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/status.h"
#include "base/utf8.h"

namespace aotpack::runtime::json {

const char* kind_name(Kind kind) noexcept {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kInt:
      return "an integer";
    case Kind::kDouble:
      return "a number";
    case Kind::kString:
      return "a string";
    case Kind::kArray:
      return "a list";
    case Kind::kObject:
      return "an object";
  }
  return "?";
}

const Value* Value::find(std::string_view key) const noexcept {
  const auto at = std::lower_bound(keys.begin(), keys.end(), key);  // the parser made sure that they are sorted
  if (at == keys.end() || *at != key) return nullptr;
  return &items[static_cast<size_t>(at - keys.begin())];
}

class Parser {
 public:
  Parser(std::string_view text, Form form, Document* document)
      : text_(text), is_canonical_(form == Form::kCanonical), document_(document) {}

  void parse() {
    if (!is_canonical_) at_ = invalid_utf8(text_);
    if (at_ < text_.size() && !is_canonical_) error("the text is not UTF-8");
    at_ = 0;
    skip_space();
    value(&document_->root_, 0);
    if (!is_canonical_) {
      skip_space();
      if (at_ != text_.size()) error("expected the end");
      return;
    }
    if (text_.substr(at_) != "\n") error("expected one newline and the end");
  }

 private:
  [[noreturn]] void error(const char* what) const { fail(AOTPACK_MALFORMED_ARCHIVE, "JSON, byte %zu: %s", at_, what); }

  // Between any two tokens.
  void skip_space() noexcept {
    if (is_canonical_) return;
    while (peek() == ' ' || peek() == '\n' || peek() == '\t' || peek() == '\r') ++at_;
  }

  // The next character; 0 at the end (a zero byte is never part of valid JSON).
  char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }

  void expect(char wanted, const char* what) {
    if (peek() != wanted || at_ >= text_.size()) error(what);
    ++at_;
  }

  void value(Value* out, int depth) {
    if (++count_ > Document::kMaxValues) error("more than 2097152 values");
    switch (peek()) {
      case '{':
        return object(out, depth + 1);
      case '[':
        return array(out, depth + 1);
      case '"':
        out->kind = Kind::kString;
        out->string = string();
        return;
      case 't':
        word("true");
        out->kind = Kind::kBool;
        out->boolean = true;
        return;
      case 'f':
        word("false");
        out->kind = Kind::kBool;
        return;
      case 'n':
        word("null");
        return;
      default:
        return number(out);
    }
  }

  void word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) error("expected a value");
    at_ += wanted.size();
  }

  void check_depth(int depth) const {
    if (depth > Document::kMaxDepth) error("nested too deeply");
  }

  void array(Value* out, int depth) {
    check_depth(depth);
    out->kind = Kind::kArray;
    ++at_;
    skip_space();
    if (peek() == ']') {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      value(&out->items.emplace_back(), depth);
      skip_space();
      if (peek() == ']') {
        ++at_;
        return;
      }
      expect(',', "expected ',' or ']'");
    }
  }

  void object(Value* out, int depth) {
    check_depth(depth);
    out->kind = Kind::kObject;
    ++at_;
    skip_space();
    if (peek() == '}') {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      if (peek() != '"') error("expected a key");
      const std::string_view key = string();
      if (is_canonical_ && !out->keys.empty() && key <= out->keys.back()) {
        error(key == out->keys.back() ? "a key twice in an object" : "the keys of an object are not sorted");
      }
      out->keys.push_back(key);
      skip_space();
      expect(':', "expected ':'");
      skip_space();
      value(&out->items.emplace_back(), depth);
      skip_space();
      if (peek() == '}') {
        ++at_;
        if (!is_canonical_) check_keys(out->keys);
        return;
      }
      expect(',', "expected ',' or '}'");
    }
  }

  // That none is there twice.
  void check_keys(std::vector<std::string_view> keys) const {
    std::sort(keys.begin(), keys.end());
    const auto twice = std::adjacent_find(keys.begin(), keys.end());
    if (twice != keys.end()) error(("a key twice in an object, '" + std::string(*twice) + "'").c_str());
  }

  std::string_view string() {
    const size_t begin = ++at_;
    for (;; ++at_) {
      if (at_ >= text_.size()) error("a string does not end");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') return text_.substr(begin, at_++ - begin);
      if (c == '\\') return escaped_string(begin);
      if (c < 0x20) error("a control character in a string");
      if (is_canonical_ && c >= 0x80) error("a character outside ASCII (it has to be escaped)");
    }
  }

  // As string(), from the first backslash on.
  std::string_view escaped_string(size_t begin) {
    std::string& out = document_->unescaped_.emplace_back(text_.substr(begin, at_ - begin));
    for (;;) {
      if (at_ >= text_.size()) error("a string does not end");
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"') {
        ++at_;
        return out;
      }
      if (c < 0x20) error("a control character in a string");
      if (is_canonical_ && c >= 0x80) error("a character outside ASCII (it has to be escaped)");
      ++at_;
      if (c != '\\') {
        out.push_back(static_cast<char>(c));
        continue;
      }
      escape(&out);
    }
  }

  void escape(std::string* out) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt";
    static constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    if (at_ >= text_.size()) error("a string does not end");
    if (text_[at_] == 'u') {
      ++at_;
      return code_point(out);
    }
    const size_t which = kLetters.find(text_[at_]);
    if (which == std::string_view::npos) error("an unknown escape");
    out->push_back(kMeanings[which]);
    ++at_;
  }

  uint32_t four_hex_digits() {
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      uint32_t digit;
      if (c >= '0' && c <= '9') {
        digit = static_cast<uint32_t>(c - '0');
      } else if (c >= 'a' && c <= 'f') {
        digit = static_cast<uint32_t>(c - 'a' + 10);
      } else if (c >= 'A' && c <= 'F') {
        digit = static_cast<uint32_t>(c - 'A' + 10);
      } else {
        error("expected four hex digits");
      }
      unit = unit << 4 | digit;
      ++at_;
    }
    return unit;
  }

  void code_point(std::string* out) {
    uint32_t point = four_hex_digits();
    if (point >= 0xDC00 && point <= 0xDFFF) error("a lone surrogate");
    if (point >= 0xD800 && point <= 0xDBFF) {
      if (text_.substr(at_, 2) != "\\u") error("a lone surrogate");
      at_ += 2;
      const uint32_t low = four_hex_digits();
      if (low < 0xDC00 || low > 0xDFFF) error("a lone surrogate");
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
    if (point < 0x80) {
      put(point);
    } else if (point < 0x800) {
      put(0xC0 | point >> 6);
      put(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
      put(0xE0 | point >> 12);
      put(0x80 | (point >> 6 & 0x3F));
      put(0x80 | (point & 0x3F));
    } else {
      put(0xF0 | point >> 18);
      put(0x80 | (point >> 12 & 0x3F));
      put(0x80 | (point >> 6 & 0x3F));
      put(0x80 | (point & 0x3F));
    }
  }

  bool digit() const noexcept { return peek() >= '0' && peek() <= '9'; }

  void digits() {
    if (!digit()) error("expected a digit");
    while (digit()) ++at_;
  }

  void number(Value* out) {
    const size_t begin = at_;
    if (peek() == '-') ++at_;
    if (!digit()) error("expected a value");
    if (peek() == '0') {
      ++at_;
      if (digit()) error("a number with a leading zero");
    } else {
      digits();
    }
    bool whole = true;
    if (peek() == '.') {
      whole = false;
      ++at_;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      whole = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    const char* first = text_.data() + begin;
    const char* last = text_.data() + at_;
    if (whole && std::from_chars(first, last, out->integer).ec == std::errc()) {
      out->kind = Kind::kInt;
      return;
    }
    out->kind = Kind::kDouble;
    if (std::from_chars(first, last, out->number).ec != std::errc() || !std::isfinite(out->number)) {
      error("a number out of range");
    }
  }

  std::string_view text_;
  bool is_canonical_;
  Document* document_;
  size_t at_ = 0;
  size_t count_ = 0;
};

Document::Document(std::string_view text, Form form) { Parser(text, form, this).parse(); }

}  // namespace aotpack::runtime::json
