// Updates of weights on CUDA devices that fail, with the fake driver: the old weights stay in use.
#include <doctest/doctest.h>

#include <memory>

#include "cuda_weights_fixture.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;

TEST_CASE("cuda weights: an update that fails at any call of the driver changes nothing") {
  const TempFile file(cuda_updatable_archive());
  for (const char* function : {"cuMemAlloc_v2", "cuMemHostAlloc", "cuMemcpyAsync", "cuStreamCreate", "cuEventCreate",
                               "cuEventRecord", "cuEventSynchronize", "cuStreamSynchronize"}) {
    CAPTURE(std::string(function));
    Model model = load_with(file.path(), {});
    Context context(model);
    CudaWeights now;
    for (int round = 0; round < 3; ++round) CHECK(call(context) == expected(now));
    const size_t live = CONTROL(fake_cuda_live)();
    int failures = 0;
    for (int n = 1; n < 200; ++n) {
      const CudaWeights next = random_cuda_weights(static_cast<uint32_t>(n));
      const uint64_t generation = model.weight_generation();
      const uint64_t before = CONTROL(fake_cuda_calls)(function);
      CONTROL(fake_cuda_fail)(function, n, 2);
      bool failed = false;
      try {
        n % 3 == 2 ? model.reset_weights() : model.update_weights(next.views());
      } catch (const aotpack::Error& error) {
        CHECK(error.code() == AOTPACK_OUT_OF_MEMORY);
        failed = true;
      }
      const bool reached = CONTROL(fake_cuda_calls)(function) - before >= static_cast<uint64_t>(n);
      CONTROL(fake_cuda_recover)();
      if (!failed) now = n % 3 == 2 ? CudaWeights() : next;
      CHECK(model.weight_generation() == generation + !failed);
      CHECK(call(context) == expected(now));
      CHECK(CONTROL(fake_cuda_live)() == live);
      failures += failed;
      if (!reached) break;
    }
    CHECK(failures > 0);
  }
}

TEST_CASE("cuda weights: a device without memory for a second set says so") {
  const TempFile file(cuda_updatable_archive());
  Model model = load_with(file.path(), {});
  Context context(model);
  (void)call(context);
  // 256 MiB in all.
  std::vector<std::unique_ptr<DeviceBuffer>> others;
  others.push_back(std::make_unique<DeviceBuffer>(size_t{220} << 20));
  const CudaWeights next = random_cuda_weights(1);
  const aotpack::Error error = error_of([&] { model.update_weights(next.views()); });
  CHECK(error.code() == AOTPACK_OUT_OF_MEMORY);
  CHECK(message_of(error) ==
        "out of memory: 20972288 bytes for weights on cuda:0 (Fake GPU 0, compute capability 9.0)");
  CHECK(call(context) == expected(CudaWeights()));
  others.clear();
  model.update_weights(next.views());
  CHECK(call(context) == expected(next));
}

TEST_CASE("cuda weights: a fold that fails") {
  const TempFile file(cuda_updatable_archive());
  Model model = load_with(file.path(), {});
  Context context(model);
  CudaWeights wrong = random_cuda_weights(1);
  wrong.gain[0] = 0;
  const aotpack::Error error = error_of([&] { model.update_weights(wrong.views()); });
  CHECK(message_of(error).find("the new weights cannot be folded: ") != std::string::npos);
  CHECK(call(context) == expected(CudaWeights()));
}
