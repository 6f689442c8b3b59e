// The manifest's dims, values, codes, guards and checks: what is read, and what is malformed.
#include <doctest/doctest.h>

#include <functional>

#include "base/status.h"
#include "fixtures.h"
#include "manifest/manifest.h"

using namespace aotpack::tests;
namespace runtime = aotpack::runtime;

namespace {

// Dims `batch`, `length` by sizes and `count` by a number, a computed size, a number that gives none, a check.
Json good_manifest() {
  Json forward = entry(
      "forward", {dim("batch", 8, 64, 8), dim("length", 0, Json()), dim("count", -1, 9)},
      {value("x", "float32", {size("batch"), size("length")}),
       value("flat", "float32", {expression("batch*length", Json::array({"$batch", "$length", "*"}))}),
       number("n", "int", "count"), number("scale", "float")},
      {value("y", "float32", {expression("length//2", Json::array({"$length", 2, "//"})), expression("u0", Json())}),
       number("total", "float")},
      {variant("default", {guard("length", 1, 128, 4)}, {module(0, {}, {})},
               {check("length <= batch", Json::array({"$length", "$batch", "<="}))})});
  Json top = manifest({}, {forward});
  top["files"] =
      Json::array({Json::object({{"path", "modules/x86-64/forward"}, {"size", 16}, {"sha256", std::string(64, '0')}})});
  return top;
}

std::string error_after(const std::function<void(Json&)>& change) {
  Json top = good_manifest();
  change(top["entries"][0]);
  try {
    runtime::parse_manifest(top.dump() + "\n");
  } catch (const runtime::Error& error) {
    CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
    return error.message();
  }
  return "";
}

// With another code of the computed size of an input.
std::string code_error(Json code) {
  return error_after([&](Json& e) { e["inputs"][1]["shape"][0]["code"] = code; });
}

Json list(std::vector<Json> items) { return Json::array(std::move(items)); }

}  // namespace

TEST_CASE("values: everything is read") {
  const runtime::Manifest manifest = runtime::parse_manifest(good_manifest().dump() + "\n");
  const runtime::EntryRecord& entry = manifest.entries[0];
  CHECK(entry.dims[0].multiple_of == 8);
  CHECK(entry.dims[2].min == -1);
  const runtime::SizeRecord& flat = entry.inputs[1].shape[0];
  CHECK(flat.kind == runtime::SizeRecord::Kind::kCode);
  CHECK(flat.text == "batch*length");
  CHECK(flat.code.dims() == std::vector<uint32_t>{0, 1});
  CHECK(entry.inputs[0].number == AOTPACK_NUMBER_NONE);
  CHECK(entry.inputs[0].dim == runtime::ValueRecord::kNoDim);
  CHECK(entry.inputs[2].number == AOTPACK_NUMBER_INT);
  CHECK(entry.inputs[2].dim == 2);
  CHECK(entry.inputs[3].number == AOTPACK_NUMBER_FLOAT);
  CHECK(entry.outputs[0].shape[0].kind == runtime::SizeRecord::Kind::kCode);
  CHECK(entry.outputs[0].shape[1].kind == runtime::SizeRecord::Kind::kData);
  CHECK(entry.outputs[1].number == AOTPACK_NUMBER_FLOAT);
  const runtime::VariantRecord& variant = entry.variants[0];
  CHECK(variant.guards[0].multiple_of == 4);
  REQUIRE(variant.checks.size() == 1);
  CHECK(variant.checks[0].text == "length <= batch");
  CHECK(variant.checks[0].code.type() == runtime::CodeType::kBool);
}

TEST_CASE("values: malformed codes say which item of which code is wrong") {
  const std::string where = "manifest.entries[0].inputs[1].shape[0].code";
  const Json pi = Json::object({{"float", Json::raw("3.25")}});
  CHECK(code_error(list({"$batch", true, 1, 2, "select", "*"})) == "");
  CHECK(code_error(list({"$batch", "float", pi, "*", "floor"})) == "");
  CHECK(code_error(list({"$batch", "float", Json::object({{"float", 2}}), "*", "floor"})) == "");
  CHECK(code_error(Json()) == where + ": only sizes of outputs and of values between steps may come out of the data");
  CHECK(code_error("$batch") == where + ": expected a list, got a string");
  CHECK(code_error(list({})) == where + ": does not leave exactly one value");
  CHECK(code_error(list({"$batch", 2})) == where + ": does not leave exactly one value");
  CHECK(code_error(list({"$batch", 2, "<"})) == where + ": does not leave an int");
  CHECK(code_error(list({"$batch", "$width", "*"})) == where + "[1]: there is no dim 'width'");
  CHECK(code_error(list({"$"})) == where + "[0]: there is no dim ''");
  CHECK(code_error(list({"$batch", 2, "plus"})) == where + "[2]: unknown operator");
  CHECK(code_error(list({"$batch", ""})) == where + "[1]: unknown operator");
  CHECK(code_error(list({"$batch", "*"})) == where + "[1]: the stack holds too few values for this operator");
  CHECK(code_error(list({"$batch", pi, "*"})) ==
        where + "[2]: the operands are not of the types that this operator takes");
  CHECK(code_error(list({Json()})) ==
        where + "[0]: expected an integer, a boolean, a string or an object with a float");
  CHECK(code_error(list({Json::raw("2.5")})) ==
        where + "[0]: expected an integer, a boolean, a string or an object with a float");
  CHECK(code_error(list({Json::raw("9223372036854775808")})) ==
        where + "[0]: expected an integer, a boolean, a string or an object with a float");
  CHECK(code_error(list({Json::object({{"float", "2"}}), "floor"})).find("[0].float: expected") != std::string::npos);
  CHECK(code_error(list({Json::object({{"int", 2}}), "floor"})) == where + "[0]: missing key 'float'");
  CHECK(code_error(list({Json::object({{"float", 2}, {"int", 2}}), "floor"})) == where + "[0]: unknown key 'int'");
  std::vector<Json> deep(33, 1);
  CHECK(code_error(list(deep)) == where + "[32]: more than 32 values on the stack");
  std::vector<Json> wide = {"$batch"};
  wide.insert(wide.end(), 256, "neg");
  CHECK(code_error(list(wide)) == where + "[256]: more than 256 items");
  wide.pop_back();
  CHECK(code_error(list(wide)) == "");
}

TEST_CASE("values: malformed dims, sizes and numbers") {
  CHECK(error_after([](Json& e) { e["dims"][0]["multiple_of"] = 0; }).find("dims[0].multiple_of: 0 is out of range") !=
        std::string::npos);
  CHECK(error_after([](Json& e) { e["dims"][0].erase("multiple_of"); }) ==
        "manifest.entries[0].dims[0]: missing key 'multiple_of'");
  CHECK(error_after([](Json& e) { e["dims"][1]["min"] = -1; }) ==
        "manifest.entries[0].dims[1].min: negative, but no int gives the dim");
  CHECK(error_after([](Json& e) { e["outputs"][0]["shape"][0]["expr"] = ""; }) ==
        "manifest.entries[0].outputs[0].shape[0].expr: is empty");
  CHECK(error_after([](Json& e) { e["outputs"][0]["shape"][0]["code"] = list({"$count", true, "=="}); }) ==
        "manifest.entries[0].outputs[0].shape[0].code[2]: the operands are not of the types that this operator takes");

  CHECK(error_after([](Json& e) { e["inputs"][2]["number"] = "complex"; }) ==
        "manifest.entries[0].inputs[2].number: expected 'int', 'float' or 'bool'");
  CHECK(error_after([](Json& e) { e["inputs"][2]["number"] = 1; }) ==
        "manifest.entries[0].inputs[2].number: expected a string, got an integer");
  CHECK(error_after([](Json& e) { e["inputs"][2]["dtype"] = "int32"; }) ==
        "manifest.entries[0].inputs[2].number: a number of this kind is int64 of rank 0");
  CHECK(error_after([](Json& e) { e["inputs"][3]["dtype"] = "float32"; }) ==
        "manifest.entries[0].inputs[3].number: a number of this kind is float64 of rank 0");
  CHECK(error_after([](Json& e) {
          e["inputs"][3]["shape"] = list({1});
          e["inputs"][3]["order"] = list({0});
        }) == "manifest.entries[0].inputs[3].number: a number of this kind is float64 of rank 0");
  CHECK(error_after([](Json& e) { e["inputs"][2]["mutated"] = true; }) ==
        "manifest.entries[0].inputs[2].mutated: a number cannot be mutated");
  const std::string only = ".dim: only an input that is an int gives a dim";
  CHECK(error_after([](Json& e) { e["inputs"][3]["dim"] = "count"; }) == "manifest.entries[0].inputs[3]" + only);
  CHECK(error_after([](Json& e) { e["inputs"][0]["dim"] = "count"; }) == "manifest.entries[0].inputs[0]" + only);
  CHECK(error_after([](Json& e) { e["outputs"][1] = number("total", "int", "count"); }) ==
        "manifest.entries[0].outputs[1]" + only);
  CHECK(error_after([](Json& e) { e["inputs"][2]["dim"] = "counts"; }) ==
        "manifest.entries[0].inputs[2].dim: there is no dim 'counts'");
}

TEST_CASE("values: every dim that is used has a source") {
  const std::string unknown = "manifest.entries[0]: dim 'count' is used but no input determines it";
  const auto without_number = [](const std::function<void(Json&)>& use) {
    return error_after([&](Json& e) {
      e["inputs"][2]["dim"] = Json();
      e["dims"][2]["min"] = 0;
      use(e);
    });
  };
  CHECK(without_number([](Json&) {}) == "");
  CHECK(without_number([](Json& e) { e["variants"][0]["guards"].push(guard("count", 0, 1)); }) == unknown);
  CHECK(without_number([](Json& e) {
          e["variants"][0]["checks"].push(check("count == 1", list({"$count", 1, "=="})));
        }) == unknown);
  CHECK(without_number([](Json& e) { e["inputs"][1]["shape"][0]["code"] = list({"$count"}); }) == unknown);
  CHECK(without_number([](Json& e) { e["outputs"][0]["shape"][0]["code"] = list({"$count"}); }) == unknown);
  CHECK(without_number([](Json& e) { e["outputs"][0]["shape"][0] = size("count"); }) == unknown);
  // With the number, each of these is right.
  CHECK(error_after([](Json& e) { e["outputs"][0]["shape"][0] = size("count"); }) == "");
  CHECK(error_after([](Json& e) { e["variants"][0]["guards"].push(guard("count", -1, 1)); }) == "");
}

TEST_CASE("values: malformed guards and checks") {
  const auto change_guard = [](const char* key, Json to) {
    return error_after([&](Json& e) { e["variants"][0]["guards"][0][key] = to; });
  };
  CHECK(change_guard("multiple_of", 0).find("guards[0].multiple_of: 0 is out of range") != std::string::npos);
  CHECK(change_guard("dim", "width") == "manifest.entries[0].variants[0].guards[0].dim: there is no dim 'width'");
  CHECK(change_guard("multiple", 1) == "manifest.entries[0].variants[0].guards[0]: unknown key 'multiple'");
  const auto change_check = [](const char* key, Json to) {
    return error_after([&](Json& e) { e["variants"][0]["checks"][0][key] = to; });
  };
  CHECK(change_check("code", list({"$batch"})) ==
        "manifest.entries[0].variants[0].checks[0].code: does not leave a bool");
  CHECK(change_check("code", Json()) == "manifest.entries[0].variants[0].checks[0].code: expected a list, got null");
  CHECK(change_check("text", "") == "manifest.entries[0].variants[0].checks[0].text: is empty");
  CHECK(change_check("expr", "x") == "manifest.entries[0].variants[0].checks[0]: unknown key 'expr'");
  CHECK(error_after([](Json& e) { e["variants"][0].erase("checks"); }) ==
        "manifest.entries[0].variants[0]: missing key 'checks'");
}
