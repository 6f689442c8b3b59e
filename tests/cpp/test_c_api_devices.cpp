// The C interface: sizes of structs, devices and streams; and the same in aotpack.hpp.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>

#include "aotpack/aotpack.hpp"
#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Model;
using aotpack::same_device;

namespace {

constexpr DLDevice kCpu = {kDLCPU, 0};

std::string take(aotpack_status* status, aotpack_code code) {
  CHECK(aotpack_status_code(status) == code);
  std::string message = aotpack_status_message(status);
  aotpack_status_release(status);
  return message;
}

ArchiveWriter scalars_archive() {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_trio)}};
  writer.manifest =
      manifest({}, {entry("forward", {}, {value("x", "int64", {2, 3}), number("f", "float"), number("n", "int")},
                          {value("output", "int64", {expression("u0", Json())})},
                          {variant("default", {}, {module(0, {}, {"alloc"})})})});
  return writer;
}

}  // namespace

TEST_CASE("structs that the library fills say how much of them there is, and where values are") {
  const TempFile file(scalars_archive());
  const Model model = Model::load(file.path());
  for (size_t i = 0; i < model.input_count(); ++i) {
    const aotpack_value_info& info = model.input(i);
    CHECK(info.struct_size == sizeof(aotpack_value_info));
    CHECK(same_device(info.device, kCpu));
    for (int32_t axis = 0; axis < info.rank; ++axis) {
      CHECK(info.dims[axis]->struct_size == sizeof(aotpack_dim_info));
      CHECK(info.dims[axis]->size == 2 + axis);
    }
  }
  CHECK(model.input(1).number == AOTPACK_NUMBER_FLOAT);
  CHECK(same_device(model.output(0).device, kCpu));
  CHECK(std::string(model.output(0).dims[0]->expression) == "u0");

  const TempFile weights(updatable_archive());
  const Model updatable = Model::load(weights.path());
  for (const std::vector<aotpack_weight_info>& infos : {updatable.weights(), updatable.state()}) {
    CHECK_FALSE(infos.empty());
    for (const aotpack_weight_info& info : infos) {
      CHECK(info.struct_size == sizeof info);
      CHECK(same_device(info.device, kCpu));
    }
  }
}

TEST_CASE("a struct of a library that knows less, or more, is copied as far as both know it") {
  struct {
    aotpack_weight_info info;
    int64_t later;
  } larger{};
  larger.info.struct_size = sizeof larger;
  larger.info.rank = 3;
  aotpack_weight_info copy = aotpack::detail::copy_info(&larger.info);
  CHECK(copy.struct_size == sizeof copy);
  CHECK(copy.rank == 3);
  larger.info.struct_size = offsetof(aotpack_weight_info, device);
  larger.info.device = kCpu;
  copy = aotpack::detail::copy_info(&larger.info);
  CHECK(copy.struct_size == offsetof(aotpack_weight_info, device));
  CHECK(copy.rank == 3);
  CHECK(same_device(copy.device, {}));
}

TEST_CASE("a model is loaded for a device") {
  const TempFile file(affine_archive());
  aotpack_load_options options = {};
  options.struct_size = sizeof options;
  aotpack_model* model = nullptr;
  for (const DLDevice device : {DLDevice{}, kCpu}) {
    options.device = device;
    REQUIRE(aotpack_model_load(file.path().c_str(), &options, &model) == nullptr);
    CHECK(same_device(aotpack_model_device(model), kCpu));
    aotpack_model_release(model);
  }
  CHECK(same_device(aotpack_model_device(nullptr), {}));

  const auto refused = [&](DLDevice device) {
    options.device = device;
    model = reinterpret_cast<aotpack_model*>(1);
    const std::string message =
        take(aotpack_model_load(file.path().c_str(), &options, &model), AOTPACK_UNSUPPORTED_TARGET);
    CHECK(model == nullptr);
    return message;
  };
  CHECK(refused({kDLCUDA, 9}) == file.path() +
                                     ": cannot run on cuda:9: there is no cuda:9: the CUDA driver finds 3 devices, "
                                     "cuda:0 to cuda:2; the archive has modules for x86-64");
  CHECK(refused({kDLCUDA, -1}).find("there is no cuda:-1") != std::string::npos);
  CHECK(refused({kDLCUDA, 1}) == file.path() +
                                     ": entry 'forward' has no module that cuda:1 (Fake GPU 1, compute capability 8.6) "
                                     "runs: x86-64 needs the CPU (the device's best target is cuda-sm_86; build the "
                                     "archive for that one too)");
  CHECK(refused({kDLCPU, 1}).find("cannot run on cpu:1: ") != std::string::npos);
  CHECK(refused({static_cast<DLDeviceType>(-7), 0}).find("cannot run on DLPack device type -7: ") != std::string::npos);
  CHECK(refused({static_cast<DLDeviceType>(0), 1}).find("cannot run on DLPack device type 0: ") != std::string::npos);

  // What is wrong with the archive comes first, and a caller that does not know the device gets the default.
  options.device = {kDLCUDA, 0};
  take(aotpack_model_load("/nonexistent/file.aotpack", &options, &model), AOTPACK_NOT_FOUND);
  options.struct_size = offsetof(aotpack_load_options, device);
  REQUIRE(aotpack_model_load(file.path().c_str(), &options, &model) == nullptr);
  aotpack_model_release(model);
}

TEST_CASE("the same in aotpack.hpp") {
  const TempFile file(affine_archive());
  CHECK(same_device(Model::load(file.path()).device(), kCpu));
  aotpack::LoadOptions options;
  options.verify = aotpack::Verify::kFull;
  CHECK(same_device(Model::load(file.path(), options).device(), kCpu));
  options.device = {kDLCUDA, 0};
  const aotpack::Error error = error_of([&] { Model::load(file.path(), options); });
  CHECK(error.code() == AOTPACK_UNSUPPORTED_TARGET);
  CHECK(message_of(error).find("has no module that cuda:0 (Fake GPU 0, compute capability 9.0) runs") !=
        std::string::npos);
}

TEST_CASE("the CPU has no streams, and nothing to wait for") {
  aotpack::Context context = context_of(affine_archive());
  CHECK(context.stream() == nullptr);
  context.set_stream(nullptr);
  context.synchronize();
  int other = 0;
  const aotpack::Error error = error_of([&] { context.set_stream(&other); });
  CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
  CHECK(message_of(error) == "the model runs on the CPU, which has no streams: the stream must be NULL");
  CHECK(context.stream() == nullptr);
  const float x[4] = {1, 2, 3, 4};
  CHECK(context.run({aotpack::TensorView(x, {1, 4})})[0].data<float>()[0] == 3);

  CHECK(take(aotpack_context_set_stream(nullptr, nullptr), AOTPACK_INVALID_ARGUMENT) == "context is NULL");
  CHECK(take(aotpack_context_synchronize(nullptr), AOTPACK_INVALID_ARGUMENT) == "context is NULL");
  CHECK(aotpack_context_stream(nullptr) == nullptr);
}
