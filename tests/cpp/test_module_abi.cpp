// What modules of each version of the ABI get and give besides tensors.
#include <doctest/doctest.h>

#include <cstring>
#include <memory>

#include "base/status.h"
#include "call/context.h"
#include "fixtures.h"
#include "hal/cpu/device.h"
#include "hal/features.h"
#include "hal/imports.h"
#include "model/model.h"
#include "model/module_call.h"

using namespace aotpack::tests;
namespace rt = aotpack::runtime;

namespace {

Json& module_of(ArchiveWriter& writer) { return module_in(writer.manifest["entries"][0]); }

ArchiveWriter version_1_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1, 2, 3, 4});
  writer.files = {{"weights/0", weights}, {"modules/x86-64/forward", read_bytes(MODULE_version_1)}};
  writer.manifest = manifest({constant("w", "float32", {4}, {1}, 0, 0, weights)},
                             {entry("forward", {}, {value("x", "float32", {4})}, {value("y", "float32", {4})},
                                    {variant("default", {}, {module(1, {0}, {"alloc"})})})});
  module_of(writer)["abi_version"] = 1;
  return writer;
}

ArchiveWriter elsewhere_archive() {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_elsewhere)}};
  writer.manifest = manifest({}, {entry("forward", {}, {value("x", "int64", {2})}, {value("y", "int64", {2})},
                                        {variant("default", {}, {module(0, {}, {"alloc"})})})});
  return writer;
}

constexpr char kCode[] = "device code";
alignas(AOTPACK_ALIGNMENT) constexpr char kTable[] = {7, 8, 9};

rt::Bytes as_bytes(const void* data, size_t size) { return {static_cast<const uint8_t*>(data), size}; }

// A module with two assets in a file of their own, and the feature "async".
ArchiveWriter devices_archive() {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1});
  const std::string code = std::string(kCode, sizeof kCode) + std::string(64 - sizeof kCode, '\0');
  writer.files = {{"weights/0", weights},
                  {"modules/x86-64/forward", read_bytes(MODULE_devices)},
                  {"modules/x86-64/assets", code + std::string(kTable, sizeof kTable)}};
  writer.manifest = manifest({constant("w", "float32", {1}, {1}, 0, 0, weights)},
                             {entry("forward", {}, {value("x", "float32", {2})}, {value("y", "int64", {16})},
                                    {variant("default", {}, {module(1, {0}, {"alloc", "fail"})})})});
  const auto asset = [](const char* name, int64_t offset, size_t bytes) {
    return Json::object({{"name", name}, {"file", 2}, {"offset", offset}, {"nbytes", static_cast<int64_t>(bytes)}});
  };
  module_of(writer)["assets"] = Json::array({asset("code", 0, sizeof kCode), asset("table", 64, sizeof kTable)});
  module_of(writer)["features"] = Json::array({"async"});
  return writer;
}

rt::ModuleRecord devices_record() {
  rt::ModuleRecord record;
  record.target = "x86-64";
  record.abi_version = 2;
  record.constants = {0};
  record.imports = {"alloc", "fail"};
  record.assets = {{"code", 0, 0, sizeof kCode}, {"table", 0, 64, sizeof kTable}};
  record.features = {"async"};
  return record;
}

std::unique_ptr<rt::Executable> load_module(const char* path, const rt::ModuleRecord& record) {
  const std::string code = read_bytes(path);
  rt::SealedFile file(rt::MemorySource(as_bytes(code.data(), code.size())), 0, code.size(), rt::SealedFile::Use::kCode);
  return rt::cpu_device().load(
      {std::move(file), {as_bytes(kTable, sizeof kTable), as_bytes(kCode, sizeof kCode)}, &record, 1, 1, "somewhere"});
}

void expect_refusal(const char* path, const rt::ModuleRecord& record, aotpack_code code, const std::string& message) {
  try {
    (void)load_module(path, record);
    FAIL("the module was accepted");
  } catch (const rt::Error& error) {
    CHECK(error.code() == code);
    CHECK(error.message() == message);
  }
}

}  // namespace

TEST_CASE("a module of ABI version 1 runs as it did") {
  aotpack::Context context = context_of(version_1_archive());
  const float x[4] = {1, 1, 2, 2};
  for (int round = 0; round < 3; ++round) {
    const auto outputs = context.run({aotpack::TensorView(x, {4})});
    const auto* y = outputs[0].data<float>();
    CHECK(std::vector<float>(y, y + 4) == std::vector<float>{3, 4, 7, 8});
  }
}

TEST_CASE("a manifest that takes a module of ABI version 1 for one of version 2, or the reverse") {
  ArchiveWriter writer = version_1_archive();
  module_of(writer)["abi_version"] = 2;
  CHECK(message_of(load_error(writer)).find("its ABI version is not the manifest's") != std::string::npos);
}

TEST_CASE("a module of ABI version 1 has no assets or features, and runs on the CPU only") {
  rt::ModuleRecord record = devices_record();
  record.abi_version = 1;
  expect_refusal(MODULE_version_1, record, AOTPACK_MALFORMED_ARCHIVE,
                 "somewhere: a module of ABI version 1 has no assets or features");
  record.assets.clear();
  record.features.clear();
  record.imports = {"alloc"};
  CHECK(load_module(MODULE_version_1, record)->abi_version() == 1);
  class Elsewhere final : public rt::Executable {
   public:
    using Executable::Executable;
    explicit Elsewhere(rt::ExecutableSource source) : Executable(std::move(source)) {}
    int32_t launch(const aotpack_module_call&, rt::Stream&) const override { return AOTPACK_MODULE_FAILED; }
  };
  rt::ExecutableSource source;
  source.record = &record;
  source.what = "somewhere";
  source.device = {kDLCUDA, 0};
  try {
    const Elsewhere executable(std::move(source));
    FAIL("the module was accepted");
  } catch (const rt::Error& error) {
    CHECK(error.code() == AOTPACK_UNSUPPORTED_VERSION);
    CHECK(error.message() == "somewhere: a module of ABI version 1 runs on the CPU only");
  }
}

TEST_CASE("a module of ABI version 2 sees devices, stream, assets and features") {
  const rt::ModuleRecord record = devices_record();
  const auto executable = load_module(MODULE_devices, record);
  const rt::ModuleCall prepared(*executable, {false}, 1, 1);
  CHECK(prepared.names_devices());
  rt::CallState state;
  state.allocator = rt::Allocator::create(rt::cpu_device());
  const auto stream = rt::cpu_device().make_stream();
  const aotpack_module_tensor given{};
  aotpack_module_tensor output{};
  aotpack_module_device device{};
  aotpack_module_call call = prepared.prepared();
  call.runtime = &state;
  call.inputs = call.constants = &given;
  call.outputs = &output;
  call.output_devices = &device;
  call.stream = stream->handle();
  call.num_threads = 1;
  REQUIRE(executable->launch(call, *stream) == AOTPACK_MODULE_OK);
  const auto* seen = static_cast<const int64_t*>(output.data);
  const std::vector<int64_t> expected = {sizeof(aotpack_module_call),
                                         kDLCPU,
                                         0,  // the device
                                         kDLCPU,
                                         0,  // of the input
                                         kDLCPU,
                                         0,  // of the constant
                                         0,  // no stream
                                         static_cast<int64_t>(rt::all_features()),
                                         sizeof kTable,
                                         7,
                                         0,  // the first asset: its size, first byte, no handle
                                         sizeof kCode,
                                         'd',
                                         0,
                                         0};
  CHECK(std::vector<int64_t>(seen, seen + 16) == expected);
  CHECK(device.type == prepared.output_devices()[0].type);
  CHECK(device.index == prepared.output_devices()[0].index);
  rt::Allocator::release_block(output.block);
  state.allocator->release();
}

TEST_CASE("assets and features of an archive reach its module") {
  const float x[2] = {1, 2};
  const auto seen = [&](aotpack::Context context) {
    const auto outputs = context.run({aotpack::TensorView(x, {2})});
    const auto* y = outputs[0].data<int64_t>();
    return std::vector<int64_t>(y + 8, y + 16);
  };
  const auto provided = static_cast<int64_t>(rt::all_features());
  const std::vector<int64_t> expected = {provided, sizeof kCode, 'd', 0, sizeof kTable, 7, 0, 0};
  CHECK(seen(context_of(devices_archive())) == expected);
  // They are the bytes that were verified, whatever becomes of the file.
  const TempFile file(devices_archive());
  aotpack::Context context(aotpack::Model::load(file.path()));
  file.flip(read_bytes(file.path()).find(kCode));
  CHECK(seen(std::move(context)) == expected);
}

TEST_CASE("assets that were changed are found when the archive is loaded") {
  ArchiveWriter writer = devices_archive();
  const std::string bytes = writer.build();
  std::string damaged = bytes;
  damaged[damaged.find(kCode)] = 'D';
  CHECK(load_error(damaged).code() == AOTPACK_TAMPERED_ARCHIVE);
}

TEST_CASE("an archive whose module does not have the manifest's assets or features") {
  const auto refusal_with = [](const std::function<void(Json&)>& change) {
    ArchiveWriter writer = devices_archive();
    change(module_of(writer));
    const aotpack::Error error = load_error(writer);
    CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
    return message_of(error);
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  CHECK(has(refusal_with([](Json& m) { m["features"] = Json::array({}); }), "its features are not the manifest's"));
  CHECK(has(refusal_with([](Json& m) { m["assets"][0]["name"] = "cubin"; }),
            "its asset 0 is not the manifest's 'cubin'"));
  CHECK(has(refusal_with([](Json& m) { m["assets"] = Json::array({}); }), "it has 2 assets, the manifest 0"));

  ArchiveWriter writer = devices_archive();
  module_of(writer)["features"] = Json::array({"async", "telepathy"});
  const aotpack::Error error = load_error(writer);
  CHECK(error.code() == AOTPACK_UNSUPPORTED_TARGET);
  CHECK(has(message_of(error), "x86-64 needs the feature 'telepathy', which this runtime does not provide"));
}

TEST_CASE("a module whose assets or features are not the manifest's is refused before it runs") {
  rt::ModuleRecord record = devices_record();
  record.features.clear();
  expect_refusal(MODULE_devices, record, AOTPACK_MALFORMED_ARCHIVE, "somewhere: its features are not the manifest's");
  record = devices_record();
  record.features.emplace_back("telepathy");
  expect_refusal(MODULE_devices, record, AOTPACK_UNSUPPORTED_VERSION,
                 "somewhere: the module needs the feature 'telepathy', which this runtime (" AOTPACK_VERSION_STRING
                 ") does not provide; it provides async, host_steps");
  expect_refusal(MODULE_devices_unknown, devices_record(), AOTPACK_UNSUPPORTED_VERSION,
                 "somewhere: the module needs features (bits 0x10000000000) that this runtime (" AOTPACK_VERSION_STRING
                 ") does not provide; it provides async, host_steps");
  record = devices_record();
  record.assets.pop_back();
  expect_refusal(MODULE_devices, record, AOTPACK_MALFORMED_ARCHIVE, "somewhere: it has 2 assets, the manifest 1");
  record = devices_record();
  std::swap(record.assets[0], record.assets[1]);
  expect_refusal(MODULE_devices, record, AOTPACK_MALFORMED_ARCHIVE,
                 "somewhere: its asset 0 is not the manifest's 'table'");

  // All uses of a file are the same module.
  record = devices_record();
  const auto executable = load_module(MODULE_devices, record);
  rt::ModuleRecord other = record;
  executable->check(other, 1, 1, "elsewhere");
  other.assets[1].offset = 128;
  CHECK_THROWS_WITH_AS(executable->check(other, 1, 1, "elsewhere"),
                       "elsewhere: its assets are not the same for all its uses", rt::Error);
}

TEST_CASE("a module that needs a feature of which the manifest says nothing is refused") {
  ArchiveWriter writer = elsewhere_archive();
  writer.files[0].bytes = read_bytes(MODULE_devices);
  const std::string weights = bytes_of<float>({1});
  writer.files.push_back({"weights/0", weights});
  writer.manifest["constants"].push(constant("w", "float32", {1}, {1}, 1, 0, weights));
  module_of(writer)["constants"].push(0);
  module_of(writer)["imports"].push("fail");
  CHECK(message_of(load_error(writer)).find("its features are not the manifest's") != std::string::npos);
}

TEST_CASE("features by name") {
  CHECK(rt::find_feature("async") == AOTPACK_MODULE_FEATURE_ASYNC);
  CHECK(rt::find_feature("") == 0);
  CHECK(rt::find_feature("asyn") == 0);
  CHECK(rt::find_feature("host_steps") == AOTPACK_MODULE_FEATURE_HOST_STEPS);
  CHECK(rt::all_features() == (AOTPACK_MODULE_FEATURE_ASYNC | AOTPACK_MODULE_FEATURE_HOST_STEPS));
}

TEST_CASE("a module that says that an output is on another device has failed") {
  // Also one that says nothing.
  aotpack::Context silent = context_of(elsewhere_archive());
  const int64_t nothing[2] = {-1, 0};
  CHECK(message_of(error_of([&] { silent.run({aotpack::TensorView(nothing, {2})}); })) ==
        "entry 'forward': the module returned output 'y' on DLPack device type 0, which must be on cpu");

  aotpack::Context context = context_of(elsewhere_archive());
  const auto refused = [&](std::vector<int64_t> x) {
    const aotpack::Error error = error_of([&] { context.run({aotpack::TensorView(x.data(), {2})}); });
    CHECK(error.code() == AOTPACK_INTERNAL);
    int64_t y[2] = {-1, -1};
    const aotpack::Error again =
        error_of([&] { context.run_into({aotpack::TensorView(x.data(), {2})}, {aotpack::MutableTensorView(y, {2})}); });
    CHECK(again.code() == AOTPACK_INTERNAL);
    CHECK(y[0] == -1);
    return message_of(error);
  };
  const auto runs = [&] {
    const int64_t x[2] = {kDLCPU, 0};
    const auto outputs = context.run({aotpack::TensorView(x, {2})});
    CHECK(outputs[0].data<int64_t>()[0] == kDLCPU);
  };
  runs();
  CHECK(refused({kDLCUDA, 1}) == "entry 'forward': the module returned output 'y' on cuda:1, which must be on cpu");
  CHECK(refused({kDLCPU, 1}).find("on cpu:1, which must be on cpu") != std::string::npos);
  runs();
}
