#include "cuda_fixtures.h"

#include <dlfcn.h>

#include <cstdlib>

namespace aotpack::tests {
namespace {

// Before anything asks for a device.
[[maybe_unused]] const int environment =
    setenv("AOTPACK_LIBCUDA", FAKE_LIBCUDA, 1) + setenv("FAKE_CUDA_DEVICES", "9.0,8.6,12.1", 1) +
    setenv("AOTPACK_PROVIDER_PATH", "/nonexistent::" FAKE_PROVIDERS, 1) + setenv("FAKE_CUDA_MEMORY", "268435456", 1);

const char* const kImports[] = {"alloc", "free", "fail", "seed", "launch", "copy", "upload", "download", "fill"};

}  // namespace

void* find_control(const char* name) {
  static void* const library = dlopen(FAKE_LIBCUDA, RTLD_NOW);
  REQUIRE(library != nullptr);
  void* function = dlsym(library, name);
  REQUIRE(function != nullptr);
  return function;
}

std::string fake_cubin(const std::string& architecture, const std::string& kernel) {
  return "FAKECUBIN " + architecture + " " + kernel + '\0';
}

std::string fake_ptx(const std::string& architecture, const std::string& kernel) {
  return ".version 7.0\n.target " + architecture + "\n.visible .entry " + kernel + "()\n";
}

Json cuda_module(ArchiveWriter& writer, const char* path, std::vector<Json> constants, const std::string& target,
                 const std::vector<AssetBytes>& assets) {
  writer.files.push_back({"modules/" + target + "/forward", read_bytes(path)});
  std::vector<Json> imports;
  for (const char* name : kImports) imports.push_back(name);
  Json json = module(static_cast<int64_t>(writer.files.size()) - 1, std::move(constants), std::move(imports), target);
  json["features"] = Json::array({"async"});
  std::string bytes;
  for (const AssetBytes& asset : assets) {
    bytes.resize((bytes.size() + 63) / 64 * 64);
    json["assets"].push(Json::object({{"name", asset.name},
                                      {"file", static_cast<int64_t>(writer.files.size())},
                                      {"offset", static_cast<int64_t>(bytes.size())},
                                      {"nbytes", static_cast<int64_t>(asset.bytes.size())}}));
    bytes += asset.bytes;
  }
  writer.files.push_back({"modules/" + target + "/assets", bytes});
  return json;
}

ArchiveWriter cuda_affine_archive(const std::vector<std::string>& targets, bool with_ptx) {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1, 2, 3, 4});
  writer.files = {{"weights/0", weights}};
  std::vector<Json> modules;
  for (const std::string& target : targets) {
    if (target == "x86-64") {
      writer.files.push_back({"modules/x86-64/forward", read_bytes(MODULE_affine)});
      modules.push_back(module(static_cast<int64_t>(writer.files.size()) - 1, {0}, {"alloc", "free"}));
      continue;
    }
    const std::string architecture = target.substr(5);
    std::vector<AssetBytes> assets = {{"affine.cubin", fake_cubin(architecture, "affine")},
                                      {with_ptx ? "affine.ptx" : "affine.txt", fake_ptx(architecture, "affine")}};
    const char* path = target == "cuda-sm_90" ? MODULE_cuda_affine : MODULE_cuda_affine_80;
    if (!with_ptx) assets.pop_back(), path = MODULE_cuda_affine_80_binary;
    modules.push_back(cuda_module(writer, path, {0}, target, assets));
  }
  writer.manifest =
      manifest({constant("w", "float32", {4}, {1}, 0, 0, weights)},
               {entry("forward", {dim("batch", 1, 1 << 24)}, {value("x", "float32", {size("batch"), 4})},
                      {value("output", "float32", {size("batch"), 4})}, {variant("default", {}, modules)})});
  return writer;
}

ArchiveWriter cuda_mutate_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({100});
  writer.files = {{"weights/0", weights}};
  const Json module = cuda_module(writer, MODULE_cuda_mutate, {0}, "cuda-sm_90",
                                  {{"increment.cubin", fake_cubin("sm_90", "increment")}});
  Json only = variant("default", {}, {});
  only["targets"] = targets({module}, 1, 2);
  writer.manifest = manifest({constant("total", "float32", {1}, {1}, 0, 0, weights, true)},
                             {entry("forward", {}, {value("x", "float32", {4}, {}, true)},
                                    {value("view", "float32", {4}), value("sum", "float32", {1})}, {only})});
  return writer;
}

ArchiveWriter cuda_chain_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1, 2, 3, 4});
  writer.files = {{"weights/0", weights}};
  const Json module =
      cuda_module(writer, MODULE_cuda_chain, {0}, "cuda-sm_90", {{"affine.cubin", fake_cubin("sm_90", "affine")}});
  Json only = variant("default", {}, {});
  only["targets"] = targets({module}, 2, 2);
  writer.manifest = manifest(
      {constant("w", "float32", {4}, {1}, 0, 0, weights)},
      {entry("forward", {dim("batch", 1, 1 << 24)}, {value("x", "float32", {size("batch"), 4}), number("k", "int")},
             {value("y", "float32", {size("batch"), 4}), value("z", "float32", {size("batch"), 4})}, {only})});
  return writer;
}

ArchiveWriter cuda_waits_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1, 2, 3, 4});
  writer.files = {{"weights/0", weights}};
  const Json module =
      cuda_module(writer, MODULE_cuda_waits, {0}, "cuda-sm_90", {{"affine.cubin", fake_cubin("sm_90", "affine")}});
  writer.manifest = manifest({constant("w", "float32", {4}, {1}, 0, 0, weights)},
                             {entry("forward", {dim("batch", 1, 1 << 24)}, {value("x", "float32", {size("batch"), 4})},
                                    {value("y", "float32", {size("batch"), 4})}, {variant("default", {}, {module})})});
  return writer;
}

ArchiveWriter cuda_moves_archive() {
  ArchiveWriter writer;
  const Json module = cuda_module(writer, MODULE_cuda_moves, {}, "cuda-sm_90",
                                  {{"device_assert.cubin", fake_cubin("sm_90", "device_assert")}});
  Json only = variant("default", {}, {});
  only["targets"] = targets({module}, 2, 3);
  writer.manifest = manifest(
      {}, {entry("forward", {}, {value("x", "float32", {4}), number("k", "int")},
                 {value("filled", "int64", {3}), value("bytes", "uint8", {5}), value("table", "float32", {3, 2})},
                 {only})});
  return writer;
}

ArchiveWriter cuda_provide_archive() {
  ArchiveWriter writer;
  Json module =
      cuda_module(writer, MODULE_cuda_provide, {}, "cuda-sm_90", {{"affine.cubin", fake_cubin("sm_90", "affine")}});
  for (const char* name : {"tensor_map", "provide"}) module["imports"].push(name);
  Json only = variant("default", {}, {});
  only["targets"] = targets({module}, 2, 1);
  writer.manifest = manifest(
      {}, {entry("forward", {dim("rows", 1, 1 << 16)}, {value("x", "float32", {size("rows"), 8}), number("k", "int")},
                 {value("spectrum", "complex64", {size("rows"), 5})}, {only})});
  return writer;
}

}  // namespace aotpack::tests
