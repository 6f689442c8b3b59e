#include "seeds.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

#include "base/sha256.h"
#include "choices.h"

namespace aotpack::fuzz {
namespace {

using tests::ArchiveWriter;

std::string read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json dim(const char* name, int64_t min, Json max, int64_t multiple_of = 1) {
  return object({{"name", name}, {"min", min}, {"max", max}, {"multiple_of", multiple_of}});
}
Json size(const char* name, int64_t mul = 1, int64_t add = 0) {
  return object({{"dim", name}, {"mul", mul}, {"add", add}});
}
Json expression(const char* text, Json code) { return object({{"expr", text}, {"code", code}}); }

Json value(const char* name, const char* dtype, std::vector<Json> shape, std::vector<Json> order = {},
           bool mutated = false) {
  if (order.empty()) {
    for (size_t i = 0; i < shape.size(); ++i) {
      order.emplace_back(static_cast<int64_t>(i));
    }
  }
  return object({{"name", name},
                 {"dtype", dtype},
                 {"shape", list(std::move(shape))},
                 {"order", list(std::move(order))},
                 {"mutated", mutated},
                 {"number", Json()},
                 {"dim", Json()},
                 {"device", 0}});
}

Json number(const char* name, const std::string& kind, Json gives) {
  Json result = value(name, kind == "int" ? "int64" : kind == "float" ? "float64" : "bool", {});
  result["number"] = kind;
  result["dim"] = gives;
  result["device"] = Json();
  return result;
}

Json module(int64_t file, std::vector<Json> constants, const char* target = "x86-64") {
  return object({{"target", target},
                 {"abi_version", 2},
                 {"file", file},
                 {"constants", list(std::move(constants))},
                 {"imports", list({"alloc", "free", "fail", "seed"})},
                 {"kernels", list({object({{"name", "k"}, {"ops", list({"aten.add"})}})})},
                 {"assets", list({})},
                 {"features", list({})}});
}

// To input, output or value `index`.
Json reference(const char* source, int64_t index) { return object({{source, index}}); }

Json references(const char* source, size_t count) {
  Json result = list({});
  for (size_t i = 0; i < count; ++i) {
    result.push(reference(source, static_cast<int64_t>(i)));
  }
  return result;
}

Json step(Json module, Json inputs, Json outputs, Json device = 0) {
  return object({{"device", device}, {"inputs", inputs}, {"outputs", outputs}, {"module", module}});
}

// Of a module that computes the entry; `entry` fills in its inputs and outputs.
Json whole(Json module) {
  return object(
      {{"target", module["target"]}, {"values", list({})}, {"steps", list({step(module, list({}), list({}))})}});
}

Json variant(const char* name, std::vector<Json> guards, std::vector<Json> modules, std::vector<Json> checks = {}) {
  Json targets = list({});
  for (const Json& module : modules) {
    targets.push(whole(module));
  }
  return object(
      {{"name", name}, {"guards", list(std::move(guards))}, {"checks", list(std::move(checks))}, {"targets", targets}});
}

Json guard(const char* name, int64_t min, Json max, int64_t multiple_of = 1) {
  return object({{"dim", name}, {"min", min}, {"max", max}, {"multiple_of", multiple_of}});
}

Json leaf(int64_t index) { return object({{"kind", "tensor"}, {"index", index}}); }

Json entry(const char* name, std::vector<Json> dims, std::vector<Json> inputs, std::vector<Json> outputs,
           std::vector<Json> variants) {
  for (Json& variant : variants) {
    for (Json& target : variant["targets"].items()) {
      if (target["steps"].items().size() == 1) {
        target["steps"][0]["inputs"] = references("input", inputs.size());
        target["steps"][0]["outputs"] = references("output", outputs.size());
      }
    }
  }
  Json in = list({}), out = list({}), names = list({});
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.push(leaf(static_cast<int64_t>(i)));
    names.push(Json());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    out.push(leaf(static_cast<int64_t>(i)));
  }
  const Json none = object({{"keys", list({})}, {"items", list({})}});
  return object({{"name", name},
                 {"dims", list(std::move(dims))},
                 {"inputs", list(std::move(inputs))},
                 {"outputs", list(std::move(outputs))},
                 {"in_spec", object({{"kind", "call"}, {"args", in}, {"names", names}, {"kwargs", none}})},
                 {"out_spec", object({{"kind", "tuple"}, {"items", out}})},
                 {"variants", list(std::move(variants))},
                 {"goldens", list({})}});
}

const std::string& segment() {
  static const std::string bytes = [] {
    std::string made(4096 + (1 << 17), '\0');
    for (size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<char>(i * 7);
    }
    return made;
  }();
  return bytes;
}

Json constant(const char* name, const char* dtype, std::vector<Json> shape, std::vector<Json> stride, int64_t offset,
              int64_t nbytes, bool mutated = false) {
  const std::string bytes = segment().substr(static_cast<size_t>(offset), static_cast<size_t>(nbytes));
  const runtime::Digest digest = runtime::sha256({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  return object({{"name", name},
                 {"role", "parameter"},
                 {"sources", list({name})},
                 {"dtype", dtype},
                 {"shape", list(std::move(shape))},
                 {"stride", list(std::move(stride))},
                 {"file", 0},
                 {"offset", offset},
                 {"nbytes", nbytes},
                 {"sha256", runtime::to_hex(digest)},
                 {"mutated", mutated}});
}

ArchiveWriter archive(std::vector<Json> constants, std::vector<Json> entries) {
  ArchiveWriter writer;
  writer.files = {{"weights/0", segment()},           {"modules/a", read(MODULE_fuzz_0)},
                  {"modules/b", read(MODULE_fuzz_1)}, {"goldens/0", std::string(4096, 'g')},
                  {"modules/c", read(MODULE_fuzz_2)}, {"reports/r", "{\"entries\":{}}\n"}};
  writer.manifest = object({{"format", "aotpack"},
                            {"format_version", 8},
                            {"devices", list({"main", "second"})},
                            {"name", "t"},
                            {"producer", object({{"aotpack", "t"}})},
                            {"constants", list(std::move(constants))},
                            {"entries", list(std::move(entries))},
                            {"report", Json()},
                            {"weights", Json()},
                            {"description", Json()}});
  return writer;
}

// Dims, derived sizes, numbers, codes, variants, an input that is written to, state.
ArchiveWriter dynamic() {
  const Json half = object({{"float", Json::raw("0.5")}});
  const Json float_check = object({{"text", "c"}, {"code", list({"$b", "float", half, "*", "trunc", 100, "<"})}});
  const Json int_check = object({{"text", "c"}, {"code", list({"$b", "$l", "*", 8, "%", 0, "=="})}});
  const std::vector<Json> all = {0, 1, 2};
  Json forward = entry(
      "forward", {dim("b", 1, 64), dim("l", 0, 512, 4), dim("n", -5, 10), dim("m", 0, Json())},
      {value("x", "float32", {size("b"), size("l")}), value("p", "int64", {size("b", 2, 1)}),
       value("f", "bfloat16", {expression("b*l", list({"$b", "$l", "*"}))}),
       value("mut", "int8", {size("b"), 3, 2}, {1, 2, 0}, true), number("n", "int", "n"), number("s", "float", Json()),
       number("g", "bool", Json()), value("z", "complex128", {size("m", 3, -2), 0})},
      {value("y", "float32", {size("b"), size("l")}),
       value("q", "int64", {expression("(l//2)*b", list({"$l", 2, "//", "$b", "*"}))}),
       value("d", "int64", {expression("u", Json())}), number("o", "int", Json()), value("w", "float32", {4})},
      {variant("one", {guard("b", 1, 1)}, {module(1, all)}),
       variant("even", {guard("b", 2, 64, 2)}, {module(1, all), module(1, all, "aarch64")}, {float_check}),
       variant("general", {}, {module(1, all)}, {int_check})});
  ArchiveWriter writer =
      archive({constant("w", "float32", {4}, {1}, 0, 16), constant("st", "int64", {2, 3}, {1, 2}, 64, 48, true),
               constant("big", "float32", {20000}, {1}, 128, 80000, true)},
              {forward});
  writer.manifest["report"] = 5;
  return writer;
}

Json weight(const char* name, const char* dtype, std::vector<Json> shape, Json of) {
  return object({{"name", name}, {"dtype", dtype}, {"shape", list(std::move(shape))}, {"constant", of}});
}

ArchiveWriter updatable() {
  Json forward = entry("forward", {dim("b", 1, 64)}, {value("x", "float32", {size("b"), 4})},
                       {value("y", "float32", {size("b"), 4}), value("c", "float32", {4})},
                       {variant("default", {}, {module(1, {0, 2, 3, 4, 5})})});
  Json fold = entry("fold", {}, {value("weight", "float32", {4}), value("gain", "float32", {4})},
                    {value("packed", "float32", {4}), value("mt", "float32", {2, 3}, {1, 0})},
                    {variant("default", {}, {module(2, {})})});
  ArchiveWriter writer =
      archive({constant("weight", "float32", {4}, {1}, 0, 16), constant("gain", "float32", {4}, {1}, 64, 16),
               constant("packed", "float32", {4}, {1}, 128, 16), constant("matrix", "float32", {2, 3}, {1, 2}, 192, 24),
               constant("count", "int64", {1}, {1}, 256, 8, true),
               constant("bulk", "float32", {16384 + 5}, {1}, 4096, 65556, true),
               constant("gap", "int16", {2, 2}, {8, 3}, 320, 24)},
              {forward, fold});
  writer.manifest["weights"] =
      object({{"tensors", list({weight("weight", "float32", {4}, 0), weight("gain", "float32", {4}, 1),
                                weight("tied", "float32", {4}, 1), weight("count", "int64", {1}, 4),
                                weight("bulk", "float32", {16389}, 5), weight("gap", "int16", {2, 2}, 6),
                                weight("unused", "int64", {}, Json())})},
              {"fold", object({{"entry", "fold"}, {"results", list({2, 3})}})}});
  return writer;
}

Json golden(const char* dtype, std::vector<Json> shape, int64_t offset, int64_t nbytes) {
  return object({{"dtype", dtype},
                 {"shape", list(std::move(shape))},
                 {"file", 3},
                 {"offset", offset},
                 {"nbytes", nbytes},
                 {"step", 1}});
}

// Nested structures, goldens, permuted orders, empty tensors.
ArchiveWriter nested() {
  Json forward =
      entry("forward", {dim("n", 0, Json()), dim("c", 0, Json()), dim("h", 0, 9)},
            {value("x", "int32", {size("n"), size("c"), size("h"), 2}, {0, 2, 3, 1}),
             value("y", "bool", {size("c", 4, 0), size("n")}, {1, 0}, true), value("e", "uint16", {0, 3})},
            {value("o", "int32", {size("n"), size("c"), size("h"), 2}, {0, 2, 3, 1}), value("a", "float16", {0, 3})},
            {variant("default", {}, {module(4, {0})})});
  const Json pair = object({{"kind", "tuple"}, {"items", list({leaf(0), object({{"kind", "value"}, {"value", 3}})})}});
  const Json keyed = object({{"kind", "dict"},
                             {"keys", list({"k", 7})},
                             {"items", list({leaf(1), object({{"kind", "value"}, {"value", 1}})})}});
  const Json record =
      object({{"kind", "dataclass"}, {"type", "m:Q"}, {"keys", list({"f"})}, {"items", list({leaf(2)})}});
  forward["in_spec"] = object({{"kind", "call"},
                               {"args", list({pair, keyed})},
                               {"names", list({"a", Json()})},
                               {"kwargs", object({{"keys", list({"kw"})}, {"items", list({record})}})}});
  forward["goldens"].push(object(
      {{"inputs",
        list({golden("int32", {1, 1, 1, 2}, 0, 8), golden("bool", {4, 1}, 8, 4), golden("uint16", {0, 3}, 16, 0)})},
       {"outputs", list({golden("int32", {1, 1, 1, 2}, 0, 8), golden("float16", {0, 3}, 16, 0)})},
       {"tolerance", Json::raw("1e-5")}}));
  return archive({constant("w", "float8_e4m3fn", {3, 0}, {1, 1}, 0, 0)}, {forward});
}

// Three steps on two devices and the host, a value whose size comes out of the data, an output that a step
// reads, features.
ArchiveWriter steps() {
  const auto between = [](const char* name, const char* dtype, std::vector<Json> shape, std::vector<Json> order,
                          Json device) {
    Json result = value(name, dtype, std::move(shape), std::move(order));
    for (const char* key : {"mutated", "number", "dim"}) {
      result.erase(key);
    }
    result["device"] = device;
    return result;
  };
  const Json first = module(1, {0});
  Json last = module(4, {});
  last["features"] = list({"async"});
  Json target = object(
      {{"target", "x86-64"},
       {"values", list({between("h", "float32", {size("n"), 2}, {1, 0}, 1),
                        between("found", "int64", {expression("u", Json()), 3}, {}, Json())})},
       {"steps", list({step(first, list({reference("input", 0), reference("input", 1)}), list({reference("value", 0)})),
                       step(module(2, {1}), list({reference("value", 0)}),
                            list({reference("value", 1), reference("output", 1)}), Json()),
                       step(last, list({reference("value", 1), reference("output", 1), reference("input", 1)}),
                            list({reference("output", 0)}), 1)})}});
  Json variant = object({{"name", "default"}, {"guards", list({})}, {"checks", list({})}, {"targets", list({target})}});
  return archive(
      {constant("w", "float32", {4}, {1}, 0, 16), constant("st", "int64", {2, 3}, {1, 2}, 64, 48, true)},
      {entry("forward", {dim("n", 0, 64)}, {value("x", "float32", {size("n"), 2}), number("s", "int", Json())},
             {value("y", "float32", {expression("u", Json())}), value("z", "bool", {size("n")})}, {variant})});
}

}  // namespace

std::vector<ArchiveWriter> seeds() { return {dynamic(), updatable(), nested(), steps()}; }

void damage(std::string& bytes, const tests::Layout& layout) {
  const tests::EntryLayout& entry = layout.entries[pick(layout.entries.size())];
  const uint64_t places[] = {entry.header + pick(60), entry.central + pick(70), layout.end + pick(32),
                             layout.directory + pick(layout.size - layout.directory), pick(bytes.size() + 1)};
  const uint64_t at = one_of(places);
  switch (pick(8)) {
    case 0:
      bytes.resize(pick(bytes.size()) + 1);
      break;
    case 1:
      bytes += std::string(pick(100), '\0');
      break;
    case 2:
    case 3:
    case 4:
      if (at + 4 < bytes.size()) {
        const uint32_t field = chance(50) ? UINT32_MAX : static_cast<uint32_t>(draw());
        memcpy(&bytes[at], &field, 4);
      }
      break;
    default:
      if (at < bytes.size()) {
        bytes[at] = static_cast<char>(pick(256));
      }
  }
}

}  // namespace aotpack::fuzz
