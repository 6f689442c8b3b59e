#include <doctest/doctest.h>

#include <string>

#include "base/status.h"
#include "manifest/json.h"

using namespace aotpack::runtime;
using json::Document;
using json::Kind;

namespace {

std::string error_of(const std::string& text) {
  try {
    const Document document(text);
  } catch (const Error& error) {
    CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
    return error.message();
  }
  return "";
}

}  // namespace

TEST_CASE("JSON: values") {
  const std::string text =
      "{\"a\":[1,-2,3.5,true,false,null],\"b\":\"x\\n\\u0041\\u00e9\\u20ac\\ud83d\\ude00\\/\",\"c\":{}}\n";
  const Document document(text);
  const json::Value& root = document.root();
  REQUIRE(root.kind == Kind::kObject);
  const json::Value& a = *root.find("a");
  REQUIRE(a.items.size() == 6);
  CHECK(a.items[0].integer == 1);
  CHECK(a.items[1].integer == -2);
  CHECK(a.items[2].kind == Kind::kDouble);
  CHECK(a.items[2].number == 3.5);
  CHECK(a.items[3].boolean);
  CHECK(a.items[4].kind == Kind::kBool);
  CHECK_FALSE(a.items[4].boolean);
  CHECK(a.items[5].kind == Kind::kNull);
  CHECK(root.find("b")->string == "x\nA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80/");
  CHECK(root.find("c")->kind == Kind::kObject);
  CHECK(root.find("d") == nullptr);
}

TEST_CASE("JSON: integers and doubles are kept apart") {
  const auto kind = [](const std::string& text) { return Document(text + "\n").root().kind; };
  CHECK(kind("9223372036854775807") == Kind::kInt);
  CHECK(kind("-9223372036854775808") == Kind::kInt);
  CHECK(kind("9223372036854775808") == Kind::kDouble);
  CHECK(kind("1.0") == Kind::kDouble);
  CHECK(kind("1e2") == Kind::kDouble);
  CHECK(kind("0") == Kind::kInt);
  CHECK(kind("-0") == Kind::kInt);
}

TEST_CASE("JSON: what is malformed, and where") {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"", "byte 0: expected a value"},
      {"\n", "byte 0: expected a value"},
      {"1", "byte 1: expected one newline and the end"},
      {"1\n\n", "byte 1: expected one newline and the end"},
      {"1 \n", "byte 1: expected one newline and the end"},
      {" 1\n", "byte 0: expected a value"},
      {"[1, 2]\n", "byte 3: expected a value"},
      {"[1,]\n", "byte 3: expected a value"},
      {"[1\n", "byte 2: expected ',' or ']'"},
      {"[", "byte 1: expected a value"},
      {"{\"a\":1,\"a\":2}\n", "byte 10: a key twice in an object"},
      {"{\"b\":1,\"a\":2}\n", "byte 10: the keys of an object are not sorted"},
      {"{\"a\" :1}\n", "byte 4: expected ':'"},
      {"{\"a\":1,}\n", "byte 7: expected a key"},
      {"{\"a\":1\n", "byte 6: expected ',' or '}'"},
      {"{a:1}\n", "byte 1: expected a key"},
      {"'a'\n", "byte 0: expected a value"},
      {"\"a\n", "byte 2: a control character in a string"},
      {"\"a", "byte 2: a string does not end"},
      {"\"a\\", "byte 3: a string does not end"},
      {"\"\\x\"\n", "byte 2: an unknown escape"},
      {"\"\\u12g4\"\n", "byte 5: expected four hex digits"},
      {"\"\\ud800\"\n", "byte 7: a lone surrogate"},
      {"\"\\udc00\"\n", "byte 7: a lone surrogate"},
      {"\"\\ud800\\u0041\"\n", "byte 13: a lone surrogate"},
      {"\"\xC3\xA9\"\n", "byte 1: a character outside ASCII (it has to be escaped)"},
      {"\"\\n\xC3\xA9\"\n", "byte 3: a character outside ASCII (it has to be escaped)"},
      {"01\n", "byte 1: a number with a leading zero"},
      {"-\n", "byte 1: expected a value"},
      {"+1\n", "byte 0: expected a value"},
      {"1.\n", "byte 2: expected a digit"},
      {".5\n", "byte 0: expected a value"},
      {"1e\n", "byte 2: expected a digit"},
      {"1e999\n", "byte 5: a number out of range"},
      {"NaN\n", "byte 0: expected a value"},
      {"Infinity\n", "byte 0: expected a value"},
      {"tru\n", "byte 0: expected a value"},
      {"nulL\n", "byte 0: expected a value"},
      {"\xEF\xBB\xBF"
       "1\n",
       "byte 0: expected a value"},
  };
  for (const auto& test : cases) {
    CAPTURE(test.text);
    CHECK(error_of(test.text) == std::string("JSON, ") + test.message);
  }
  CHECK(error_of(std::string("\"a\0b\"\n", 6)) == "JSON, byte 2: a control character in a string");
  CHECK(error_of(std::string("1\0", 2)) == "JSON, byte 1: expected one newline and the end");
}

TEST_CASE("JSON: depth is bounded") {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']') + "\n"; };
  CHECK(error_of(nested(Document::kMaxDepth)).empty());
  CHECK(error_of(nested(Document::kMaxDepth + 1)).find("nested too deeply") != std::string::npos);
  CHECK(error_of(std::string(1000000, '[')).find("nested too deeply") != std::string::npos);
}
