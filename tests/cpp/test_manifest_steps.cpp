// Devices, implementations, steps, assets and features in the manifest: what is read, and what is malformed.
#include <doctest/doctest.h>

#include <functional>

#include "base/status.h"
#include "fixtures.h"
#include "manifest/manifest.h"

using namespace aotpack::tests;
namespace runtime = aotpack::runtime;

namespace {

using Source = runtime::ReferenceRecord::Source;

// Two steps on two devices: (x, n) -> h, then (h, x, h) -> (y, z); a host implementation of one step.
Json good_manifest() {
  Json first = module(1, {0}, {"alloc"});
  first["target"] = "sm_90";
  first["assets"] = Json::array({Json::object({{"name", "a"}, {"file", 2}, {"offset", 64}, {"nbytes", 36}}),
                                 Json::object({{"name", "b"}, {"file", 1}, {"offset", 0}, {"nbytes", 0}})});
  first["features"] = Json::array({"async", "novel"});
  Json forward = entry("forward", {dim("n", 1, 64)}, {value("x", "float32", {size("n"), 2}), number("k", "int")},
                       {value("y", "float32", {size("n")}), value("z", "float32", {size("n")})},
                       {variant("default", {}, {module(1, {0}, {"alloc"})})});
  forward["variants"][0]["targets"].push(
      implementation("sm_90",
                     {step(first, references("input", 2), references("value", 1), 1),
                      step(module(1, {}, {}), {reference("value", 0), reference("input", 0), reference("value", 0)},
                           {reference("output", 1)}, Json()),
                      step(module(1, {}, {}), {reference("output", 1)}, {reference("output", 0)})},
                     {intermediate("h", "float16", {size("n", 2), expression("u", Json())}, Json())}));
  Json top = manifest({constant("s", "float32", {1}, {1}, 0, 0, std::string(4, '\0'), true)}, {forward});
  top["devices"] = Json::array({"main", "second"});
  top["files"] = Json::array({});
  for (const char* path : {"weights/0", "modules/a", "modules/code"}) {
    top["files"].push(Json::object({{"path", path}, {"size", 100}, {"sha256", std::string(64, '0')}}));
  }
  // Mutated constants are read on one device.
  module_in(top["entries"][0])["constants"] = Json::array({});
  return top;
}

std::string error_after(const std::function<void(Json&)>& change) {
  Json top = good_manifest();
  change(top);
  try {
    runtime::parse_manifest(top.dump() + "\n");
  } catch (const runtime::Error& error) {
    CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
    return error.message();
  }
  return "";
}

// After a change of the implementation of three steps; without the path of the implementation.
std::string steps_error(const std::function<void(Json&)>& change) {
  const std::string message = error_after([&](Json& top) { change(top["entries"][0]["variants"][0]["targets"][1]); });
  const std::string where = "manifest.entries[0].variants[0].targets[1]";
  return message.compare(0, where.size(), where) == 0 ? message.substr(where.size()) : message;
}

}  // namespace

TEST_CASE("steps: everything is read") {
  const runtime::Manifest manifest = runtime::parse_manifest(good_manifest().dump() + "\n");
  CHECK(manifest.format_version == 9);
  CHECK(manifest.devices == std::vector<std::string>{"main", "second"});
  const runtime::EntryRecord& entry = manifest.entries[0];
  CHECK(entry.inputs[0].device == 0);
  CHECK(entry.inputs[1].device == runtime::kHostDevice);
  REQUIRE(entry.variants[0].implementations.size() == 2);
  CHECK(entry.variants[0].implementations[0].target == "x86-64");
  const runtime::ImplementationRecord& implementation = entry.variants[0].implementations[1];
  CHECK(implementation.target == "sm_90");
  REQUIRE(implementation.values.size() == 1);
  CHECK(implementation.values[0].device == runtime::kHostDevice);
  CHECK(implementation.values[0].shape[1].kind == runtime::SizeRecord::Kind::kData);
  REQUIRE(implementation.steps.size() == 3);
  const runtime::StepRecord& first = implementation.steps[0];
  CHECK(first.device == 1);
  CHECK_FALSE(first.is_whole);
  CHECK(first.outputs == std::vector<runtime::ReferenceRecord>{{Source::kValue, 0}});
  CHECK(first.module.assets[0].name == "a");
  CHECK(first.module.assets[0].file == 2);
  CHECK(first.module.assets[0].offset == 64);
  CHECK(first.module.assets[0].nbytes == 36);
  CHECK(first.module.features == std::vector<std::string>{"async", "novel"});
  const runtime::StepRecord& second = implementation.steps[1];
  CHECK(second.device == runtime::kHostDevice);
  CHECK(second.inputs ==
        std::vector<runtime::ReferenceRecord>{{Source::kValue, 0}, {Source::kInput, 0}, {Source::kValue, 0}});
  CHECK(implementation.steps[2].inputs == std::vector<runtime::ReferenceRecord>{{Source::kOutput, 1}});
}

TEST_CASE("steps: an earlier format has modules, one device, and none of the new keys") {
  Json top = good_manifest();
  Json& forward = top["entries"][0];
  Json old = module_in(forward);
  for (const int version : {3, 4, 5}) {
    CAPTURE(version);
    Json earlier = top;
    earlier["format_version"] = version;
    CHECK_THROWS_AS(runtime::parse_manifest(earlier.dump() + "\n"), runtime::Error);
    earlier.erase("devices");
    earlier.erase("description");
    Json& entry = earlier["entries"][0];
    for (const char* list : {"inputs", "outputs"}) {
      for (Json& value : entry[list].items()) value.erase("device");
    }
    old.erase("assets");
    old.erase("features");
    entry["variants"][0].erase("targets");
    entry["variants"][0].erase("same");
    entry["variants"][0]["modules"] = Json::array({old});
    const runtime::Manifest manifest = runtime::parse_manifest(earlier.dump() + "\n");
    CHECK(manifest.devices == std::vector<std::string>{"main"});
    CHECK(manifest.entries[0].inputs[0].device == 0);
    CHECK(manifest.entries[0].inputs[1].device == runtime::kHostDevice);
    const runtime::ImplementationRecord& implementation = manifest.entries[0].variants[0].implementations[0];
    CHECK(implementation.target == "x86-64");
    REQUIRE(implementation.steps.size() == 1);
    CHECK(implementation.steps[0].is_whole);
    CHECK(implementation.steps[0].device == 0);
  }
}

TEST_CASE("devices") {
  CHECK(error_after([](Json& m) { m["devices"] = Json::array({}); }) == "manifest.devices: is empty");
  CHECK(error_after([](Json& m) { m["devices"] = Json::array({"main", ""}); }) == "manifest.devices[1]: is empty");
  CHECK(error_after([](Json& m) { m["devices"] = Json::array({"main", "main"}); }) ==
        "manifest.devices[1]: 'main' is there twice");
  CHECK(error_after([](Json& m) { m["devices"] = Json::array({"main"}); }) ==
        "manifest.entries[0].variants[0].targets[1].steps[0].device: there is no such device");
  CHECK(error_after([](Json& m) { m["entries"][0]["inputs"][0]["device"] = 2; }) ==
        "manifest.entries[0].inputs[0].device: there is no such device");
  CHECK(error_after([](Json& m) { m["entries"][0]["inputs"][0]["device"] = -1; }).find("out of range") !=
        std::string::npos);
  CHECK(error_after([](Json& m) { m["entries"][0]["inputs"][0]["device"] = Json(); }).empty());
  CHECK(error_after([](Json& m) { m["entries"][0]["inputs"][1]["device"] = 0; }) ==
        "manifest.entries[0].inputs[1].device: a number is in memory of the host: null");
  CHECK(steps_error([](Json& i) { i["values"][0]["device"] = 2; }) == ".values[0].device: there is no such device");
  CHECK(steps_error([](Json& i) { i["steps"][1]["device"] = "main"; }) ==
        ".steps[1].device: expected an integer, got a string");
}

TEST_CASE("implementations and steps") {
  CHECK(error_after([](Json& m) { m["entries"][0]["variants"][0]["targets"] = Json::array({}); }) ==
        "manifest.entries[0].variants[0].targets: is empty");
  CHECK(steps_error([](Json& i) { i["target"] = "x86-64"; }) == ": 'x86-64' is there twice");
  CHECK(steps_error([](Json& i) { i["target"] = ""; }) == ".target: is empty");
  CHECK(steps_error([](Json& i) { i["steps"] = Json::array({}); }) == ".steps: is empty");
  CHECK(steps_error([](Json& i) { i["values"].push(i["values"][0]); }) == ".values[1]: 'h' is there twice");
  CHECK(steps_error([](Json& i) { i["values"][0]["mutated"] = false; }) == ".values[0]: unknown key 'mutated'");
  CHECK(steps_error([](Json& i) { i["values"][0]["order"] = Json::array({0}); }) ==
        ".values[0].order: not as long as the shape");
  CHECK(steps_error([](Json& i) { i["values"][0]["shape"][0]["dim"] = "m"; }) ==
        ".values[0].shape[0].dim: there is no dim 'm'");
  CHECK(error_after([](Json& m) {
          m["entries"][0]["dims"].push(dim("m", 0, Json()));
          m["entries"][0]["variants"][0]["targets"][1]["values"][0]["shape"][0]["dim"] = "m";
        }) == "manifest.entries[0]: dim 'm' is used but no input determines it");
}

TEST_CASE("references") {
  const auto inputs = [](size_t step, std::vector<Json> list) {
    return steps_error([&](Json& i) { i["steps"][step]["inputs"] = Json::array(list); });
  };
  const auto outputs = [](size_t step, std::vector<Json> list) {
    return steps_error([&](Json& i) { i["steps"][step]["outputs"] = Json::array(list); });
  };
  CHECK(inputs(2, {}).empty());
  CHECK(inputs(0, {reference("value", 0)}) == ".steps[0].inputs[0]: no earlier step produces it");
  CHECK(inputs(1, {reference("output", 1)}) == ".steps[1].inputs[0]: no earlier step produces it");  // its own
  CHECK(inputs(1, {reference("output", 0)}) == ".steps[1].inputs[0]: no earlier step produces it");  // of a later one
  CHECK(inputs(2, {reference("input", 2)}) == ".steps[2].inputs[0].input: there is no such input");
  CHECK(inputs(2, {reference("output", 2)}) == ".steps[2].inputs[0].output: there is no such output");
  CHECK(inputs(2, {reference("value", 1)}) == ".steps[2].inputs[0].value: there is no such value");
  CHECK(inputs(2, {reference("value", -1)}).find("out of range") != std::string::npos);
  CHECK(inputs(2, {reference("constant", 0)}) ==
        ".steps[2].inputs[0]: expected an object with one key: 'input', 'output' or 'value'");
  CHECK(inputs(2, {Json(0)}) == ".steps[2].inputs[0]: expected an object with one key: 'input', 'output' or 'value'");
  CHECK(inputs(2, {Json::object({{"input", 0}, {"value", 0}})}) ==
        ".steps[2].inputs[0]: expected an object with one key: 'input', 'output' or 'value'");
  CHECK(outputs(0, {reference("input", 0)}) == ".steps[0].outputs[0]: a step does not produce an input");
  CHECK(outputs(2, {reference("output", 0), reference("output", 0)}) == ".steps[2].outputs[1]: is produced twice");
  CHECK(outputs(2, {reference("output", 0), reference("output", 1)}) == ".steps[2].outputs[1]: is produced twice");
  CHECK(outputs(2, {reference("output", 0), reference("value", 0)}) == ".steps[2].outputs[1]: is produced twice");
  CHECK(outputs(2, {}) == ": no step produces output 'y'");
  CHECK(steps_error([](Json& i) {
          Json more = i["values"][0];
          more["name"] = "g";
          i["values"].push(more);
        }) == ": no step produces value 'g'");
}

TEST_CASE("a mutated constant is read on one device") {
  const auto read_by = [](size_t step) {
    return steps_error([&](Json& i) { i["steps"][step]["module"]["constants"] = Json::array({0}); });
  };
  const std::string refused = "manifest.entries: steps on several devices read constant 's', which is mutated";
  CHECK(read_by(0).empty());
  CHECK(read_by(1) == refused);
  CHECK(read_by(2) == refused);
  CHECK(error_after([](Json& m) { module_in(m["entries"][0])["constants"] = Json::array({0}); }) == refused);
}

TEST_CASE("assets and features") {
  const auto with = [](const std::function<void(Json&)>& change) {
    return steps_error([&](Json& i) { change(i["steps"][0]["module"]); });
  };
  const std::string at = ".steps[0].module.";
  CHECK(with([](Json& m) { m["assets"][1]["name"] = "a"; }) == at + "assets[1]: 'a' is there twice");
  CHECK(with([](Json& m) { m["assets"][0]["name"] = ""; }) == at + "assets[0].name: is empty");
  CHECK(with([](Json& m) { m["assets"][0]["file"] = 3; }) == at + "assets[0].file: there is no such file");
  CHECK(with([](Json& m) { m["assets"][0]["file"] = 0; }) ==
        at + "assets[0].file: file 'weights/0' is not below modules/");
  CHECK(with([](Json& m) { m["assets"][0]["offset"] = 32; }) == at + "assets[0].offset: not a multiple of 64");
  CHECK(with([](Json& m) { m["assets"][0]["nbytes"] = 37; }).find("are not all in 'modules/code', which has 100") !=
        std::string::npos);
  CHECK(with([](Json& m) { m["assets"][0]["offset"] = INT64_MAX - 63; }).find("are not all in") != std::string::npos);
  CHECK(with([](Json& m) { m["assets"][0]["nbytes"] = -1; }).find("out of range") != std::string::npos);
  CHECK(with([](Json& m) { m["features"] = Json::array({"async", "async"}); }) ==
        at + "features[1]: 'async' is there twice");
  CHECK(with([](Json& m) { m["features"] = Json::array({""}); }) == at + "features[0]: is empty");
  CHECK(with([](Json& m) { m["features"] = Json::array({1}); }) ==
        at + "features[0]: expected a string, got an integer");
}
