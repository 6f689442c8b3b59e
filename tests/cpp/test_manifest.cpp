#include <doctest/doctest.h>

#include <functional>
#include <random>

#include "base/status.h"
#include "fixtures.h"
#include "manifest/manifest.h"

using namespace aotpack::tests;
namespace runtime = aotpack::runtime;

namespace {

// The affine archive's manifest with its files.
Json good_manifest() {
  ArchiveWriter writer = affine_archive();
  Json files = Json::array({});
  for (const ArchiveFile& file : writer.files) {
    files.push(Json::object(
        {{"path", file.path}, {"size", static_cast<int64_t>(file.bytes.size())}, {"sha256", std::string(64, '0')}}));
  }
  writer.manifest["files"] = files;
  return writer.manifest;
}

std::string error_after(const std::function<void(Json&)>& change, aotpack_code code = AOTPACK_MALFORMED_ARCHIVE) {
  Json manifest = good_manifest();
  change(manifest);
  try {
    runtime::parse_manifest(manifest.dump() + "\n");
  } catch (const runtime::Error& error) {
    CHECK(error.code() == code);
    return error.message();
  }
  return "";
}

// Visits every value below `json`, deepest first.
void for_each_value(Json& json, const std::function<void(Json&)>& visit) {
  for (auto& [key, child] : json.members()) for_each_value(child, visit);
  for (Json& child : json.items()) for_each_value(child, visit);
  visit(json);
}

}  // namespace

TEST_CASE("a right manifest is read") {
  const runtime::Manifest manifest = runtime::parse_manifest(good_manifest().dump() + "\n");
  CHECK(manifest.name == "test");
  REQUIRE(manifest.constants.size() == 1);
  CHECK(manifest.constants[0].shape == std::vector<int64_t>{4});
  REQUIRE(manifest.entries.size() == 1);
  const runtime::EntryRecord& entry = manifest.entries[0];
  CHECK(entry.dims[0].name == "batch");
  CHECK(entry.dims[0].max == 64);
  CHECK(entry.inputs[0].shape[0].kind == runtime::SizeRecord::Kind::kDim);
  CHECK(entry.inputs[0].shape[1].size == 4);
  CHECK(entry.variants[0].implementations[0].steps[0].module.imports == std::vector<std::string>{"alloc", "free"});
}

TEST_CASE("every key of every object must be there, none may be added") {
  // Walk by counting, since a change invalidates references into the tree.
  Json reference = good_manifest();
  int objects = 0;
  for_each_value(reference, [&](Json& value) { objects += value.is_object() ? 1 : 0; });
  REQUIRE(objects > 20);
  for (int target = 0; target < objects; ++target) {
    std::vector<std::string> keys;
    bool free_form = false;
    int index = 0;
    Json copy = good_manifest();
    for_each_value(copy, [&](Json& value) {
      if (!value.is_object() || index++ != target) return;
      for (const auto& [key, child] : value.members()) keys.push_back(key);
      free_form = keys == std::vector<std::string>{"aotpack"};  // producer
    });
    if (free_form) continue;
    const auto change_target = [&](Json& root, const std::function<void(Json&)>& change) {
      int at = 0;
      for_each_value(root, [&](Json& value) {
        if (value.is_object() && at++ == target) change(value);
      });
    };
    for (const std::string& key : keys) {
      CAPTURE(key);
      CHECK(error_after([&](Json& root) { change_target(root, [&](Json& value) { value.erase(key); }); }) != "");
    }
    const bool is_reference = keys.size() == 1 && (keys[0] == "input" || keys[0] == "output");
    CHECK(error_after([&](Json& root) {
            change_target(root, [](Json& value) { value["unknown"] = 1; });
          }).find(is_reference ? "expected an object with one key" : "unknown key 'unknown'") != std::string::npos);
  }
}

TEST_CASE("every value of another type is refused") {
  Json reference = good_manifest();
  int values = 0;
  for_each_value(reference, [&](Json&) { ++values; });
  const Json wrong[] = {Json(),
                        Json(true),
                        Json::raw("1.5"),
                        Json(-1),
                        Json(INT64_MAX),
                        Json("text"),
                        Json::array({}),
                        Json::object({}),
                        Json::array({Json()}),
                        Json::raw("99999999999999999999")};
  int refused = 0;
  int accepted = 0;
  for (int target = 0; target < values; ++target) {
    for (const Json& replacement : wrong) {
      Json manifest = reference;
      int at = 0;
      for_each_value(manifest, [&](Json& value) {
        if (at++ == target) value = replacement;
      });
      try {
        runtime::parse_manifest(manifest.dump() + "\n");
        ++accepted;
      } catch (const runtime::Error& error) {
        const bool named = error.code() == AOTPACK_MALFORMED_ARCHIVE || error.code() == AOTPACK_UNSUPPORTED_VERSION;
        CHECK(named);
        ++refused;
      }
    }
  }
  // Some replacements are right where they land: a text for a text, an empty list of goldens.
  CHECK(refused > 8 * accepted);
}

TEST_CASE("versions and format") {
  CHECK(error_after([](Json& m) { m["format_version"] = 10; }, AOTPACK_UNSUPPORTED_VERSION).find("version 10") !=
        std::string::npos);
  CHECK(error_after([](Json& m) { m["format_version"] = 0; }, AOTPACK_UNSUPPORTED_VERSION) != "");
  // A later version may have other keys: the version is what is told.
  CHECK(error_after(
            [](Json& m) {
              m["format_version"] = 10;
              m["novel"] = 1;
              m.erase("entries");
            },
            AOTPACK_UNSUPPORTED_VERSION) != "");
  CHECK(error_after([](Json& m) { m["format"] = "other"; }) == "manifest.format: expected 'aotpack'");
  CHECK(error_after([](Json& m) { m["producer"]["x"] = 1; }) ==
        "manifest.producer.x: expected a string, got an integer");
}

TEST_CASE("constants") {
  const auto with = [](const std::function<void(Json&)>& change) {
    return error_after([&](Json& m) { change(m["constants"][0]); });
  };
  CHECK(with([](Json& c) { c["dtype"] = "float8"; }) == "manifest.constants[0].dtype: unknown dtype 'float8'");
  CHECK(with([](Json& c) { c["role"] = "weight"; }) == "manifest.constants[0].role: unknown role 'weight'");
  CHECK(with([](Json& c) { c["name"] = ""; }) == "manifest.constants[0].name: is empty");
  CHECK(with([](Json& c) { c["name"] = Json::raw("\"a\\u0000b\""); }) ==
        "manifest.constants[0].name: holds a zero character");
  CHECK(with([](Json& c) { c["sources"] = Json::array({1}); }) ==
        "manifest.constants[0].sources[0]: expected a string, got an integer");
  CHECK(with([](Json& c) { c["shape"] = Json::array({-1}); }).find("out of range") != std::string::npos);
  CHECK(with([](Json& c) { c["stride"] = Json::array({-1}); }).find("out of range") != std::string::npos);
  CHECK(with([](Json& c) { c["stride"] = Json::array({1, 1}); }).find("differ in length") != std::string::npos);
  CHECK(with([](Json& c) {
          c["shape"] = c["stride"] = Json::array(std::vector<Json>(17, Json(1)));
        }).find("17 dimensions; at most 16") != std::string::npos);
  CHECK(with([](Json& c) { c["shape"] = Json::array({5}); }).find("reach over 20 bytes, nbytes is 16") !=
        std::string::npos);
  CHECK(with([](Json& c) { c["stride"] = Json::array({2}); }).find("reach over 28 bytes") != std::string::npos);
  CHECK(with([](Json& c) { c["stride"] = Json::array({INT64_MAX}); }).find("overflow") != std::string::npos);
  CHECK(with([](Json& c) {
          c["shape"] = Json::array({INT64_MAX, INT64_MAX});
          c["stride"] = Json::array({INT64_MAX, 1});
        }).find("overflow") != std::string::npos);
  CHECK(with([](Json& c) { c["file"] = 9; }) == "manifest.constants[0].file: there is no such file");
  CHECK(with([](Json& c) { c["file"] = 1; }) ==
        "manifest.constants[0].file: file 'modules/x86-64/forward' is not below weights/");
  CHECK(with([](Json& c) { c["offset"] = 32; }) == "manifest.constants[0].offset: not a multiple of 64");
  CHECK(with([](Json& c) { c["offset"] = 64; }).find("are not all in 'weights/0', which has 16") != std::string::npos);
  CHECK(with([](Json& c) { c["nbytes"] = 17; }).find("are not all in") != std::string::npos);
  CHECK(with([](Json& c) {
          c["offset"] = INT64_MAX - 63;
          c["nbytes"] = INT64_MAX;
        }).find("are not all in") != std::string::npos);
  CHECK(with([](Json& c) { c["sha256"] = "abc"; }).find("64 lowercase hex digits") != std::string::npos);
  CHECK(error_after([](Json& m) { m["constants"].push(m["constants"][0]); }) ==
        "manifest.constants[1]: 'w' is there twice");
  // An empty tensor needs no bytes, whatever its other sizes and strides.
  CHECK(with([](Json& c) {
          c["shape"] = Json::array({INT64_MAX, 0});
          c["stride"] = Json::array({INT64_MAX, INT64_MAX});
          c["nbytes"] = 0;
        }).empty());
}

TEST_CASE("entries, dims and values") {
  const auto with = [](const std::function<void(Json&)>& change) {
    return error_after([&](Json& m) { change(m["entries"][0]); });
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(error_after([](Json& m) { m["entries"] = Json::array({}); }) == "manifest.entries: is empty");
  CHECK(error_after([](Json& m) { m["entries"].push(m["entries"][0]); }) ==
        "manifest.entries[1]: 'forward' is there twice");
  CHECK(has(with([](Json& e) { e["dims"].push(e["dims"][0]); }), "'batch' is there twice"));
  CHECK(has(with([](Json& e) { e["dims"][0]["min"] = 65; }), "dims[0].max: 64 is out of range"));
  CHECK(has(with([](Json& e) { e["dims"][0]["max"] = 0; }), "dims[0].max: 0 is out of range [1,"));
  CHECK(with([](Json& e) { e["dims"][0]["max"] = Json(); }).empty());
  CHECK(has(with([](Json& e) { e["inputs"][0]["shape"][0]["dim"] = "length"; }), "there is no dim 'length'"));
  CHECK(has(with([](Json& e) { e["inputs"][0]["shape"][0]["mul"] = 0; }), "mul: 0 is out of range"));
  CHECK(has(with([](Json& e) { e["inputs"][0]["shape"][0]["add"] = INT64_MIN; }), "add: "));
  CHECK(has(with([](Json& e) { e["inputs"][0]["shape"][1] = -4; }), "shape[1]: -4 is out of range"));
  CHECK(has(with([](Json& e) { e["inputs"][0]["shape"][0] = expression("batch", Json()); }),
            "inputs[0].shape[0].code: only sizes of outputs and of values between steps may come out of the data"));
  CHECK(with([](Json& e) { e["outputs"][0]["shape"][0] = expression("batch", Json()); }).empty());
  CHECK(has(with([](Json& e) { e["inputs"][0]["order"] = Json::array({0}); }), "not as long as the shape"));
  CHECK(has(with([](Json& e) { e["inputs"][0]["order"] = Json::array({0, 0}); }), "a dimension twice"));
  CHECK(has(with([](Json& e) { e["inputs"][0]["order"] = Json::array({0, 2}); }), "order[1]: 2 is out of range"));
  CHECK(has(with([](Json& e) { e["outputs"][0]["mutated"] = true; }), "an output cannot be mutated"));
  CHECK(has(with([](Json& e) { e["outputs"].push(e["outputs"][0]); }), "'output' is there twice"));
  // The input's shape made static: now nothing tells the batch.
  CHECK(has(with([](Json& e) { e["inputs"][0]["shape"][0] = 3; }), "dim 'batch' is used but no input determines it"));
}

TEST_CASE("variants and modules") {
  const auto with = [](const std::function<void(Json&)>& change) {
    return error_after([&](Json& m) { change(m["entries"][0]["variants"]); });
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(with([](Json& v) { v = Json::array({}); }), "variants: is empty"));
  CHECK(has(with([](Json& v) { v.push(v[0]); }), "'default' is there twice"));
  CHECK(has(with([](Json& v) { v[0]["targets"] = Json::array({}); }), "targets: is empty"));
  CHECK(has(with([](Json& v) { v[0]["targets"].push(v[0]["targets"][0]); }), "'x86-64' is there twice"));
  CHECK(has(with([](Json& v) { v[0]["guards"].push(dim("batch", 5, 4)); }), "missing key 'dim'"));
  CHECK(has(with([](Json& v) { v[0]["guards"].push(guard("batch", 5, 4)); }), "guards[0].max: 4 is out of range"));
  CHECK(has(with([](Json& v) { v[0]["guards"].push(guard("x", 5, 9)); }), "there is no dim 'x'"));
  CHECK(has(with([](Json& v) { v[0]["targets"][0]["steps"][0]["module"]["file"] = 0; }), "is not below modules/"));
  CHECK(has(with([](Json& v) { v[0]["targets"][0]["steps"][0]["module"]["file"] = 3; }), "there is no such file"));
  CHECK(has(with([](Json& v) { v[0]["targets"][0]["steps"][0]["module"]["constants"] = Json::array({1}); }),
            "there is no such constant"));
  CHECK(has(with([](Json& v) { v[0]["targets"][0]["steps"][0]["module"]["abi_version"] = 0; }),
            "abi_version: 0 is out of range"));
}

TEST_CASE("inputs that are one tensor") {
  const auto with = [](
                        Json same, const std::function<void(Json&)>& change = [](Json&) {}) {
    return error_after([&](Json& m) {
      Json& entry = m["entries"][0];
      for (const char* name : {"y", "z"}) {
        entry["inputs"].push(value(name, "float32", {3, 4}));
        entry["in_spec"]["args"].push(
            Json::object({{"kind", "tensor"}, {"index", static_cast<int64_t>(entry["inputs"].items().size() - 1)}}));
        entry["in_spec"]["names"].push(Json());
      }
      entry["goldens"] = Json::array({});
      entry["variants"][0]["same"] = std::move(same);
      change(entry);
    });
  };
  const auto groups = [](std::vector<std::vector<Json>> lists) {
    Json all = Json::array({});
    for (std::vector<Json>& list : lists) all.push(Json::array(std::move(list)));
    return all;
  };
  const std::string same = "manifest.entries[0].variants[0].same";
  CHECK(with(groups({{0, 1, 2}})) == "");
  CHECK(with(groups({{0, 1}, {1, 2}})) == same + "[1]: 'y' is in two groups");
  CHECK(with(groups({{0}})) == same + "[0]: has less than two inputs");
  CHECK(with(groups({{0, 3}})) == same + "[0][1]: there is no such input");
  CHECK(with(groups({{0, -1}})).find(same + "[0][1]: -1 is out of range") == 0);
  CHECK(with(groups({{1, 0}})) == same + "[0][1]: not in ascending order");
  CHECK(with(groups({{1, 1}})) == same + "[0][1]: not in ascending order");
  const std::string differ = same + "[0][1]: 'x' and 'y' differ in dtype, order or device";
  const auto other = [&](const char* key, Json member) {
    return with(groups({{0, 1}}), [&](Json& entry) { entry["inputs"][1][key] = member; });
  };
  CHECK(other("dtype", "int32") == differ);
  CHECK(other("order", Json::array({1, 0})) == differ);
  CHECK(other("device", Json()) == differ);
  CHECK(with(groups({{1, 2}}), [](Json& entry) { entry["inputs"][2] = number("z", "float"); }) ==
        same + "[0][1]: 'z' is a number");
  CHECK(error_after([](Json& m) { m["entries"][0]["goldens"][0]["same"] = Json::array({Json::array({0})}); }) ==
        "manifest.entries[0].goldens[0].same[0]: has less than two inputs");
}

TEST_CASE("specs") {
  const auto in_spec = [](Json spec) { return error_after([&](Json& m) { m["entries"][0]["in_spec"] = spec; }); };
  const auto out_spec = [](Json spec) { return error_after([&](Json& m) { m["entries"][0]["out_spec"] = spec; }); };
  const auto tensor = [](int index) { return Json::object({{"kind", "tensor"}, {"index", index}}); };
  const auto sequence = [](const char* kind, std::vector<Json> items) {
    return Json::object({{"kind", kind}, {"items", Json::array(std::move(items))}});
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(out_spec(tensor(0)).empty());
  CHECK(out_spec(sequence("tuple", {tensor(0), sequence("list", {})})).empty());
  CHECK(out_spec(Json::object({{"kind", "value"}, {"value", Json()}})).empty());
  CHECK(out_spec(Json::object({{"kind", "value"}, {"value", Json::raw("1.5")}})).empty());
  CHECK(out_spec(Json::object({{"kind", "float"}, {"value", "-inf"}})).empty());
  const Json dict = Json::object({{"kind", "dict"}, {"keys", Json::array({"a"})}, {"items", Json::array({tensor(0)})}});
  CHECK(out_spec(dict).empty());
  Json named = dict;
  named["kind"] = "dataclass";
  CHECK(has(out_spec(named), "missing key 'type'"));
  named["type"] = "module:Name";
  CHECK(out_spec(named).empty());
  CHECK(has(out_spec(tensor(1)), "out_spec.index: there is no such tensor"));
  CHECK(has(out_spec(tensor(-1)), "out of range"));
  CHECK(has(out_spec(Json::object({{"kind", "set"}})), "unknown kind of spec"));
  CHECK(has(out_spec(Json::object({{"kind", "float"}, {"value", "1"}})), "expected 'inf'"));
  CHECK(has(out_spec(Json::object({{"kind", "value"}, {"value", Json::array({})}})), "expected null"));
  Json uneven = dict;
  uneven["keys"].push("b");
  CHECK(has(out_spec(uneven), "'keys' and 'items' differ in length"));
  const Json call = good_manifest()["entries"][0]["in_spec"];
  CHECK(has(out_spec(sequence("tuple", {call})), "only possible at the root of in_spec"));
  CHECK(has(out_spec(call), "only possible at the root"));
  Json misnamed = call;
  misnamed["names"].push("x");
  CHECK(has(in_spec(misnamed), "'args' and 'names' differ in length"));
  CHECK(has(in_spec(tensor(0)), "expected a call"));
  Json numbered = dict;
  numbered["keys"] = Json::array({"1", 1, -7});
  numbered["items"] = Json::array({tensor(0), tensor(0), tensor(0)});
  CHECK(out_spec(numbered).empty());
  numbered["keys"] = Json::array({-7, "a", -7});
  CHECK(has(out_spec(numbered), "the key -7 appears twice"));
  numbered["keys"] = Json::array({1, Json::raw("1.5"), 2});
  CHECK(has(out_spec(numbered), "keys[1]"));
  numbered["keys"] = Json::array({1, Json::raw("true"), 2});
  CHECK(has(out_spec(numbered), "keys[1]"));
  numbered["keys"] = Json::array({1, Json::raw("9223372036854775808"), 2});
  CHECK(has(out_spec(numbered), "keys[1]"));
  // The fields of a class are names.
  named["keys"] = Json::array({1});
  CHECK(has(out_spec(named), "keys[0]"));
  named["keys"] = Json::array({"a"});
  Json twice = call;
  twice["args"].push(tensor(0));
  twice["names"].push("again");
  CHECK(has(in_spec(twice), "input 0 appears 2 times instead of once"));
  Json none = call;
  none["args"] = Json::array({Json::object({{"kind", "value"}, {"value", Json()}})});
  CHECK(has(in_spec(none), "input 0 appears 0 times instead of once"));
  Json same = call;
  same["names"] = Json::array({"x"});
  same["args"] = Json::array({Json::object({{"kind", "value"}, {"value", Json()}})});
  same["kwargs"] = Json::object({{"keys", Json::array({"x"})}, {"items", Json::array({tensor(0)})}});
  CHECK(has(in_spec(same), "the name 'x' appears twice"));
  Json repeated = dict;
  repeated["keys"].push("a");
  repeated["items"].push(tensor(0));
  CHECK(has(out_spec(repeated), "the name 'a' appears twice"));
  named["type"] = "module:";
  CHECK(has(out_spec(named), "expected \"module:QualName\""));
}

TEST_CASE("goldens") {
  const auto with = [](const std::function<void(Json&)>& change) {
    return error_after([&](Json& m) { change(m["entries"][0]["goldens"][0]); });
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(with([](Json& g) { g["tolerance"] = Json::raw("-0.5"); }), "tolerance: is negative"));
  CHECK(has(with([](Json& g) { g["inputs"] = Json::array({}); }), "not as many tensors as the entry has"));
  CHECK(has(with([](Json& g) { g["inputs"][0]["dtype"] = "int32"; }), "not the dtype of 'x'"));
  CHECK(has(with([](Json& g) { g["inputs"][0]["shape"] = Json::array({4}); }), "not the rank of 'x'"));
  CHECK(has(with([](Json& g) { g["inputs"][0]["step"] = 2; }), "must be 1 for an input"));
  CHECK(has(with([](Json& g) { g["outputs"][0]["step"] = 2; }), "does not agree"));
  CHECK(has(with([](Json& g) { g["outputs"][0]["step"] = 0; }), "out of range"));
  CHECK(has(with([](Json& g) { g["outputs"][0]["nbytes"] = 12; }), "does not agree"));
  CHECK(has(with([](Json& g) { g["outputs"][0]["offset"] = 17; }), "are not all in 'goldens/0'"));
  CHECK(has(with([](Json& g) { g["outputs"][0]["file"] = 0; }), "is not below goldens/"));
  CHECK(has(with([](Json& g) { g["outputs"][0]["shape"] = Json::array({INT64_MAX, INT64_MAX}); }), "overflows"));
  CHECK(with([](Json& g) {
          g["outputs"][0]["step"] = 3;
          g["outputs"][0]["nbytes"] = 8;
        }).empty());
}

TEST_CASE("files must be the container's") {
  const auto files_of = [](const ArchiveWriter& writer) {
    Json list = Json::array({});
    for (const ArchiveFile& file : writer.files) {
      list.push(Json::object(
          {{"path", file.path}, {"size", static_cast<int64_t>(file.bytes.size())}, {"sha256", std::string(64, '0')}}));
    }
    return list;
  };
  ArchiveWriter writer = affine_archive();
  writer.manifest["files"] = files_of(writer);
  CHECK(load_error(writer).code() == AOTPACK_TAMPERED_ARCHIVE);  // the modules' hash is wrong
  writer.files.push_back({"extra", "x"});
  CHECK(message_of(load_error(writer)).find("the manifest names 3 files, the container has 4") != std::string::npos);
  writer.files.pop_back();
  std::swap(writer.files[0], writer.files[2]);
  CHECK(message_of(load_error(writer)).find("file 0 is 'weights/0' in the manifest, 'goldens/0' in the container") !=
        std::string::npos);
  std::swap(writer.files[0], writer.files[2]);
  writer.files[0].bytes += "1234";
  const aotpack::Error error = load_error(writer);
  CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
  CHECK(message_of(error).find("weights/0: 16 bytes by the manifest, 20 in the container") != std::string::npos);
}

TEST_CASE("random damage to a manifest gives an error or a manifest, nothing else") {
  const std::string good = good_manifest().dump() + "\n";
  std::mt19937 random(7);
  const std::string alphabet = "{}[]\",:0123456789-.eEtrufalsn\\\x01\xff";
  for (int round = 0; round < 5000; ++round) {
    std::string text = good;
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      const char c = alphabet[random() % alphabet.size()];
      switch (random() % 4) {
        case 0:
          text[at] = c;
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        case 2:
          text.insert(at, 1, c);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
      }
    }
    try {
      runtime::parse_manifest(text);
    } catch (const runtime::Error& error) {
      const bool named = error.code() == AOTPACK_MALFORMED_ARCHIVE || error.code() == AOTPACK_UNSUPPORTED_VERSION;
      REQUIRE(named);
    }
  }
}

TEST_CASE("weights and report") {
  const auto parse = [](const std::function<void(Json&)>& change) {
    ArchiveWriter writer = updatable_archive();
    Json files = Json::array({});
    for (const ArchiveFile& file : writer.files) {
      files.push(Json::object(
          {{"path", file.path}, {"size", static_cast<int64_t>(file.bytes.size())}, {"sha256", std::string(64, '0')}}));
    }
    writer.manifest["files"] = files;
    change(writer.manifest);
    return runtime::parse_manifest(writer.manifest.dump() + "\n");
  };
  const auto error = [&](const std::function<void(Json&)>& change) {
    try {
      parse(change);
    } catch (const runtime::Error& error) {
      CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
      return error.message();
    }
    return std::string();
  };
  const runtime::Manifest manifest = parse([](Json&) {});
  REQUIRE(manifest.weights);
  CHECK(manifest.weights->tensors.size() == 8);
  CHECK(manifest.weights->tensors[3].constant == 2);
  CHECK(manifest.weights->tensors[7].constant == runtime::WeightRecord::kNone);
  REQUIRE(manifest.weights->fold);
  CHECK(manifest.weights->fold->entry == 2);
  CHECK(manifest.weights->fold->inputs == std::vector<uint32_t>{0, 1});
  CHECK(manifest.weights->fold->results == std::vector<uint32_t>{3});
  CHECK_FALSE(parse([](Json& m) { m["weights"] = Json(); }).weights);
  CHECK_FALSE(parse([](Json& m) { m["weights"]["fold"] = Json(); }).weights->fold);

  CHECK(error([](Json& m) { m["description"] = 0; }) == "manifest.description: file 'weights/0' is not below reports/");
  CHECK(error([](Json& m) { m["report"] = 0; }) == "manifest.report: file 'weights/0' is not below reports/");
  CHECK(error([](Json& m) { m["weights"]["tensors"][0]["constant"] = 7; }) ==
        "manifest.weights.tensors[0].constant: there is no such constant");
  CHECK(error([](Json& m) { m["weights"]["tensors"][0]["constant"] = 4; }) ==
        "manifest.weights.tensors[0].constant: constant 'matrix' has another dtype or shape");
  CHECK(error([](Json& m) { m["weights"]["tensors"][1]["name"] = "weight"; }) ==
        "manifest.weights.tensors[1]: 'weight' is there twice");
  CHECK(error([](Json& m) { m["constants"][4]["stride"] = Json::array({0, 1}); }) ==
        "manifest.weights.tensors[4].constant: the strides of constant 'matrix' overlap");
  CHECK(error([](Json& m) { m["constants"][6]["stride"] = Json::array({0}); }) ==
        "manifest.constants[6].stride: overlapping, but the constant is mutated");
  CHECK(error([](Json& m) { m["weights"]["fold"]["entry"] = "fald"; }) ==
        "manifest.weights.fold.entry: there is no entry 'fald'");
  CHECK(error([](Json& m) { m["weights"]["fold"]["results"] = Json::array({}); }) ==
        "manifest.weights.fold.results: not as many as the entry has outputs");
  CHECK(error([](Json& m) { m["weights"]["fold"]["results"] = Json::array({2}); }) ==
        "manifest.weights.fold.results[0]: constant 'bias' is that of a tensor");
  CHECK(error([](Json& m) { m["entries"][2]["inputs"][0]["name"] = "unused"; }) ==
        "manifest.weights.fold.entry: input 'unused' of the entry is not a tensor with a constant");
  CHECK(error([](Json& m) { module_in(m["entries"][2])["constants"] = Json::array({5}); }) ==
        "manifest.weights.fold.entry: a module of the entry reads constant 'count', which is not fixed");
}
