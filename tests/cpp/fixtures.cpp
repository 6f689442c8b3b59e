#include "fixtures.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "base/sha256.h"

namespace aotpack::tests {
namespace {

std::string fresh_path() {
  static std::atomic<int> counter{0};
  return (std::filesystem::temp_directory_path() /
          ("aotpack-test-" + std::to_string(::getpid()) + "-" + std::to_string(counter++)))
      .string();
}

std::string hash(const std::string& bytes) {
  return runtime::to_hex(runtime::sha256({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}));
}

Json golden_tensor(const std::string& dtype, std::vector<Json> shape, int64_t offset, int64_t nbytes) {
  return Json::object({{"dtype", dtype},
                       {"shape", Json::array(std::move(shape))},
                       {"file", 2},
                       {"offset", offset},
                       {"nbytes", nbytes},
                       {"step", 1}});
}

}  // namespace

TempFile::TempFile() : path_(fresh_path()) {}
TempFile::TempFile(const std::string& bytes) : TempFile() { write(bytes); }
TempFile::TempFile(const ArchiveWriter& writer) : TempFile() { writer.write(path_); }
TempFile::~TempFile() { std::remove(path_.c_str()); }

void TempFile::write(const std::string& bytes) const {
  std::ofstream file(path_, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path_);
}

void TempFile::poke(uint64_t offset, char byte) const {
  const int fd = ::open(path_.c_str(), O_WRONLY);
  const bool good = fd >= 0 && ::pwrite(fd, &byte, 1, static_cast<off_t>(offset)) == 1;
  if (fd >= 0) ::close(fd);
  if (!good) throw std::runtime_error("cannot write " + path_);
}

void TempFile::flip(uint64_t offset) const {
  std::ifstream file(path_, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  poke(offset, static_cast<char>(~file.get()));
}

std::string read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

Json dim(const std::string& name, int64_t min, Json max, int64_t multiple_of) {
  return Json::object({{"name", name}, {"min", min}, {"max", std::move(max)}, {"multiple_of", multiple_of}});
}

Json guard(const std::string& dim, int64_t min, Json max, int64_t multiple_of) {
  return Json::object({{"dim", dim}, {"min", min}, {"max", std::move(max)}, {"multiple_of", multiple_of}});
}

Json size(const std::string& dim, int64_t mul, int64_t add) {
  return Json::object({{"dim", dim}, {"mul", mul}, {"add", add}});
}

Json value(const std::string& name, const std::string& dtype, std::vector<Json> shape, std::vector<Json> order,
           bool mutated) {
  if (order.empty()) {
    for (size_t i = 0; i < shape.size(); ++i) order.emplace_back(static_cast<int64_t>(i));
  }
  return Json::object({{"name", name},
                       {"dtype", dtype},
                       {"shape", Json::array(std::move(shape))},
                       {"order", Json::array(std::move(order))},
                       {"mutated", mutated},
                       {"number", Json()},
                       {"dim", Json()},
                       {"device", 0}});
}

Json expression(const std::string& text, Json code) {
  return Json::object({{"expr", text}, {"code", std::move(code)}});
}

Json number(const std::string& name, const std::string& kind, Json dim) {
  Json number = value(name, kind == "int" ? "int64" : kind == "float" ? "float64" : "bool", {});
  number["number"] = kind;
  number["dim"] = std::move(dim);
  number["device"] = Json();
  return number;
}

Json check(const std::string& text, Json code) { return Json::object({{"text", text}, {"code", std::move(code)}}); }

Json module(int64_t file, std::vector<Json> constants, std::vector<Json> imports, const std::string& target) {
  return Json::object({{"target", target},
                       {"abi_version", 2},
                       {"file", file},
                       {"constants", Json::array(std::move(constants))},
                       {"imports", Json::array(std::move(imports))},
                       {"kernels", Json::array({Json::object({{"name", "k0"}, {"ops", Json::array({"aten.add"})}})})},
                       {"assets", Json::array({})},
                       {"features", Json::array({})}});
}

Json reference(const std::string& source, int64_t index) { return Json::object({{source, index}}); }

std::vector<Json> references(const std::string& source, size_t count) {
  std::vector<Json> list;
  for (size_t i = 0; i < count; ++i) list.push_back(reference(source, static_cast<int64_t>(i)));
  return list;
}

Json step(Json module, std::vector<Json> inputs, std::vector<Json> outputs, Json device) {
  return Json::object({{"device", std::move(device)},
                       {"inputs", Json::array(std::move(inputs))},
                       {"outputs", Json::array(std::move(outputs))},
                       {"module", std::move(module)}});
}

Json implementation(const std::string& target, std::vector<Json> steps, std::vector<Json> values) {
  return Json::object(
      {{"target", target}, {"steps", Json::array(std::move(steps))}, {"values", Json::array(std::move(values))}});
}

Json intermediate(const std::string& name, const std::string& dtype, std::vector<Json> shape, Json device) {
  Json json = value(name, dtype, std::move(shape));
  for (const char* key : {"mutated", "number", "dim"}) json.erase(key);
  json["device"] = std::move(device);
  return json;
}

Json targets(std::vector<Json> modules, size_t num_inputs, size_t num_outputs) {
  Json list = Json::array({});
  for (Json& module : modules) {
    Json one = implementation("", {step(module, references("input", num_inputs), references("output", num_outputs))});
    one["target"] = module["target"];
    list.push(one);
  }
  return list;
}

Json& module_in(Json& entry, size_t variant, size_t target, size_t step) {
  return entry["variants"][variant]["targets"][target]["steps"][step]["module"];
}

Json variant(const std::string& name, std::vector<Json> guards, std::vector<Json> modules, std::vector<Json> checks) {
  return Json::object({{"name", name},
                       {"guards", Json::array(std::move(guards))},
                       {"checks", Json::array(std::move(checks))},
                       {"same", Json::array({})},
                       {"targets", targets(std::move(modules))}});
}

Json entry(const std::string& name, std::vector<Json> dims, std::vector<Json> inputs, std::vector<Json> outputs,
           std::vector<Json> variants) {
  const auto tensors = [](size_t count) {
    Json list = Json::array({});
    for (size_t i = 0; i < count; ++i) {
      list.push(Json::object({{"kind", "tensor"}, {"index", static_cast<int64_t>(i)}}));
    }
    return list;
  };
  for (Json& each : variants) {
    for (Json& target : each["targets"].items()) {
      if (target["steps"].items().size() != 1) continue;
      target["steps"][0]["inputs"] = Json::array(references("input", inputs.size()));
      target["steps"][0]["outputs"] = Json::array(references("output", outputs.size()));
    }
  }
  Json names = Json::array({});
  for (size_t i = 0; i < inputs.size(); ++i) names.push(Json());
  const Json in_spec =
      Json::object({{"kind", "call"},
                    {"args", tensors(inputs.size())},
                    {"names", names},
                    {"kwargs", Json::object({{"keys", Json::array({})}, {"items", Json::array({})}})}});
  const Json out_spec = Json::object({{"kind", "tuple"}, {"items", tensors(outputs.size())}});
  return Json::object({{"name", name},
                       {"dims", Json::array(std::move(dims))},
                       {"inputs", Json::array(std::move(inputs))},
                       {"outputs", Json::array(std::move(outputs))},
                       {"in_spec", in_spec},
                       {"out_spec", out_spec},
                       {"variants", Json::array(std::move(variants))},
                       {"goldens", Json::array({})}});
}

Json constant(const std::string& name, const std::string& dtype, std::vector<Json> shape, std::vector<Json> stride,
              int64_t file, int64_t offset, const std::string& bytes, bool mutated) {
  return Json::object({{"name", name},
                       {"role", mutated ? "buffer" : "parameter"},
                       {"sources", Json::array({name})},
                       {"dtype", dtype},
                       {"shape", Json::array(std::move(shape))},
                       {"stride", Json::array(std::move(stride))},
                       {"file", file},
                       {"offset", offset},
                       {"nbytes", static_cast<int64_t>(bytes.size())},
                       {"sha256", hash(bytes)},
                       {"mutated", mutated}});
}

Json manifest(std::vector<Json> constants, std::vector<Json> entries) {
  return Json::object({{"format", "aotpack"},
                       {"format_version", 9},
                       {"name", "test"},
                       {"devices", Json::array({"main"})},
                       {"producer", Json::object({{"aotpack", "tests"}})},
                       {"constants", Json::array(std::move(constants))},
                       {"entries", Json::array(std::move(entries))},
                       {"report", Json()},
                       {"weights", Json()},
                       {"description", Json()}});
}

Json weight(const std::string& name, const std::string& dtype, std::vector<Json> shape, Json constant) {
  return Json::object(
      {{"name", name}, {"dtype", dtype}, {"shape", Json::array(std::move(shape))}, {"constant", std::move(constant)}});
}

ArchiveWriter affine_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1, 2, 3, 4});
  const std::string golden = bytes_of<float>({1, 1, 1, 1, 3, 4, 5, 6});
  writer.files = {{"weights/0", weights}, {"modules/x86-64/forward", read_bytes(MODULE_affine)}, {"goldens/0", golden}};
  Json forward = entry("forward", {dim("batch", 1, 64)}, {value("x", "float32", {size("batch"), 4})},
                       {value("output", "float32", {size("batch"), 4})},
                       {variant("default", {}, {module(1, {0}, {"alloc", "free"})})});
  forward["goldens"].push(Json::object({{"same", Json::array({})},
                                        {"inputs", Json::array({golden_tensor("float32", {1, 4}, 0, 16)})},
                                        {"outputs", Json::array({golden_tensor("float32", {1, 4}, 16, 16)})},
                                        {"tolerance", Json::raw("0.0001")}}));
  writer.manifest = manifest({constant("w", "float32", {4}, {1}, 0, 0, weights)}, {forward});
  return writer;
}

ArchiveWriter alias_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({10, 20, 30, 40});
  writer.files = {{"weights/0", weights}, {"modules/x86-64/forward", read_bytes(MODULE_alias)}};
  const auto vector = [](const char* name) { return value(name, "float32", {4}); };
  writer.manifest = manifest({constant("w", "float32", {4}, {1}, 0, 0, weights)},
                             {entry("forward", {}, {vector("x")},
                                    {vector("constant"), vector("input"), vector("first"), vector("second"),
                                     value("transposed", "float32", {3, 2})},
                                    {variant("default", {}, {module(1, {0}, {"alloc", "free"})})})});
  return writer;
}

ArchiveWriter failing_archive() {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_failing)}};
  writer.manifest = manifest({}, {entry("forward", {}, {value("mode", "int64", {})}, {value("output", "float32", {2})},
                                        {variant("default", {}, {module(0, {}, {"alloc", "fail"})})})});
  return writer;
}

ArchiveWriter layout_archive(bool dynamic) {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_layout)}};
  std::vector<Json> dims;
  std::vector<Json> shape = {2, 3, 2, 2};
  if (dynamic) {
    dims = {dim("n", 0, Json()), dim("c", 0, Json()), dim("h", 0, Json()), dim("w", 0, Json())};
    shape = {size("n"), size("c"), size("h"), size("w")};
  }
  writer.manifest = manifest({}, {entry("forward", dims, {value("x", "int32", shape, {0, 2, 3, 1})},
                                        {value("memory", "int32", {expression("n*c*h*w", Json())})},
                                        {variant("default", {}, {module(0, {}, {"alloc"})})})});
  return writer;
}

ArchiveWriter mutate_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<int64_t>({100});
  writer.files = {{"weights/0", weights}, {"modules/x86-64/forward", read_bytes(MODULE_mutate)}};
  writer.manifest =
      manifest({constant("count", "int64", {}, {}, 0, 0, weights, true)},
               {entry("forward", {}, {value("x", "float32", {4}, {}, true)}, {value("output", "int64", {2})},
                      {variant("default", {}, {module(1, {0}, {"alloc"})})})});
  return writer;
}

ArchiveWriter bools_archive(const std::vector<uint8_t>& keep, const std::vector<uint8_t>& seen) {
  ArchiveWriter writer;
  const std::string segment = bytes_of(keep) + std::string(60, '\0') + bytes_of(seen);
  writer.files = {{"weights/0", segment}, {"modules/x86-64/forward", read_bytes(MODULE_bools)}};
  const auto forward = [](const char* name, std::vector<Json> order) {
    return entry(name, {dim("n", 0, Json())},
                 {value("mask", "bool", {size("n"), 3}, std::move(order)), number("flag", "bool"),
                  value("marks", "bool", {4}, {}, true)},
                 {value("bytes", "uint8", {size("n", 3, 13)})},
                 {variant("default", {}, {module(1, {0, 1}, {"alloc"})})});
  };
  writer.manifest = manifest({constant("keep", "bool", {4}, {1}, 0, 0, bytes_of(keep)),
                              constant("seen", "bool", {4}, {1}, 0, 64, bytes_of(seen), true)},
                             {forward("forward", {}), forward("turned", {1, 0})});
  writer.manifest["weights"] =
      Json::object({{"tensors", Json::array({weight("keep", "bool", {4}, 0)})}, {"fold", Json()}});
  return writer;
}

ArchiveWriter seed_archive() {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_seed)}};
  writer.manifest = manifest({}, {entry("forward", {}, {}, {value("seeds", "int64", {2})},
                                        {variant("default", {}, {module(0, {}, {"seed", "alloc"})})})});
  return writer;
}

ArchiveWriter updatable_archive(const UpdatableWeights& weights) {
  std::vector<float> packed(4);
  for (size_t i = 0; i < 4; ++i) packed[i] = weights.weight[i] * weights.gain[i];
  std::vector<float> transposed(6);
  for (size_t i = 0; i < 6; ++i) transposed[i % 3 * 2 + i / 3] = weights.matrix[i];
  std::string segment;
  const auto add = [&](const char* name, const char* dtype, std::vector<Json> shape, std::vector<Json> stride,
                       const std::string& bytes, bool mutated = false) {
    const auto offset = static_cast<int64_t>(segment.size());
    segment += bytes + std::string((64 - bytes.size() % 64) % 64, '\0');
    return constant(name, dtype, std::move(shape), std::move(stride), 0, offset, bytes, mutated);
  };
  std::vector<Json> constants = {
      add("weight", "float32", {4}, {1}, bytes_of(weights.weight)),
      add("gain", "float32", {4}, {1}, bytes_of(weights.gain)),
      add("bias", "float32", {4}, {1}, bytes_of(weights.bias)),
      add("packed", "float32", {4}, {1}, bytes_of(packed)),
      add("matrix", "float32", {2, 3}, {1, 2}, bytes_of(transposed)),
      add("count", "int64", {1}, {1}, bytes_of(weights.count), true),
      add("bulk", "float32", {kBulk}, {1}, bytes_of(weights.bulk), true),
  };
  const auto forward = [](const char* name) {
    return entry(name, {dim("batch", 1, 64)}, {value("x", "float32", {size("batch"), 4})},
                 {value("y", "float32", {size("batch"), 4}), value("weight", "float32", {4}),
                  value("sum", "float32", {1}), value("count", "int64", {1}), value("bulk", "float32", {1})},
                 {variant("default", {}, {module(1, {0, 2, 3, 4, 5, 6}, {"alloc", "fail"})})});
  };
  Json fold = entry("fold", {}, {value("weight", "float32", {4}), value("gain", "float32", {4})},
                    {value("packed", "float32", {4})}, {variant("default", {}, {module(2, {}, {"alloc", "fail"})})});
  ArchiveWriter writer;
  writer.files = {{"weights/0", segment},
                  {"modules/x86-64/forward", read_bytes(MODULE_updatable)},
                  {"modules/x86-64/fold", read_bytes(MODULE_updatable_fold)},
                  {"reports/passes.json", "{\"entries\":{}}\n"}};
  writer.manifest = manifest(std::move(constants), {forward("forward"), forward("again"), fold});
  writer.manifest["report"] = 3;
  writer.manifest["weights"] = Json::object(
      {{"tensors", Json::array({weight("weight", "float32", {4}, 0), weight("gain", "float32", {4}, 1),
                                weight("bias", "float32", {4}, 2), weight("tied", "float32", {4}, 2),
                                weight("matrix", "float32", {2, 3}, 4), weight("count", "int64", {1}, 5),
                                weight("bulk", "float32", {kBulk}, 6), weight("unused", "int64", {}, Json())})},
       {"fold", Json::object({{"entry", "fold"}, {"results", Json::array({3})}})}});
  return writer;
}

Model load(const ArchiveWriter& writer) {
  const TempFile file(writer);  // the mapping outlives the name
  return Model::load(file.path(), Verify::kFull);
}

Context context_of(const ArchiveWriter& writer) {
  const TempFile file(writer);
  return Context(Model::load(file.path()));
}

Context checker(std::vector<Json> dims, std::vector<Json> inputs) {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(inputs.size() == 1 ? MODULE_failing : MODULE_pair)}};
  writer.manifest =
      manifest({}, {entry("forward", std::move(dims), std::move(inputs), {value("output", "float32", {2})},
                          {variant("default", {}, {module(0, {}, {"alloc", "fail"})})})});
  return context_of(writer);
}

Context trio(std::vector<Json> dims, std::vector<Json> inputs, Json size) {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_trio)}};
  writer.manifest =
      manifest({}, {entry("forward", std::move(dims), std::move(inputs), {value("output", "int64", {std::move(size)})},
                          {variant("default", {}, {module(0, {}, {"alloc"})})})});
  return context_of(writer);
}

std::string refusal(Context& context, const std::vector<TensorView>& inputs) {
  const Error error = error_of([&] { context.run(inputs); });
  CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
  return message_of(error);
}

Error error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no aotpack::Error was thrown");
  throw std::logic_error("unreachable");
}

Error load_error(const ArchiveWriter& writer, Verify verify) {
  const TempFile file(writer);
  return error_of([&] { Model::load(file.path(), verify); });
}

Error load_error(const std::string& bytes, Verify verify) {
  const TempFile file(bytes);
  return error_of([&] { Model::load(file.path(), verify); });
}

std::string message_of(const Error& error) {
  const std::string what = error.what();
  return what.substr(what.find(": ") + 2);
}

}  // namespace aotpack::tests
