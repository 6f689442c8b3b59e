// What happens on a CUDA device when something fails, with the fake driver.
#include <doctest/doctest.h>

#include "cuda_fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::LoadOptions;
using aotpack::Model;
using aotpack::TensorView;

namespace {

Model load_cuda(const std::string& path) {
  LoadOptions options;
  options.device = {kDLCUDA, 0};
  return Model::load(path, options);
}

const std::vector<float> kX = {1, 2, 3, 4};
const int64_t kK = 5;

bool has(const aotpack::Error& error, const char* part) {
  return std::string(error.what()).find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("cuda: out of memory at each allocation, of load and call") {
  const TempFile file(cuda_affine_archive());
  for (const char* function : {"cuMemAlloc_v2", "cuStreamCreate", "cuLibraryLoadData", "cuLaunchKernel"}) {
    int failures = 0;
    for (int n = 1; n < 50; ++n) {
      const size_t live = CONTROL(fake_cuda_live)();
      const size_t streams = CONTROL(fake_cuda_streams)();
      CONTROL(fake_cuda_fail)(function, n, 2);
      const uint64_t before = CONTROL(fake_cuda_calls)(function);
      bool failed = false;
      try {
        const Model model = load_cuda(file.path());
        Context context(model);
        (void)context.run({TensorView(kX.data(), {1, 4})});
      } catch (const aotpack::Error& error) {
        CHECK(error.code() == AOTPACK_OUT_OF_MEMORY);
        failed = true;
      }
      const bool reached = CONTROL(fake_cuda_calls)(function) - before >= static_cast<uint64_t>(n);
      CONTROL(fake_cuda_recover)();
      CHECK(CONTROL(fake_cuda_live)() == live);
      CHECK(CONTROL(fake_cuda_streams)() == streams);
      // An allocation that fails is tried again when the unused blocks of the pool are freed.
      CHECK((failed || !reached || std::string(function) == "cuMemAlloc_v2"));
      failures += failed;
      if (!reached) break;
    }
    CHECK(failures > 0);
  }
}

TEST_CASE("cuda: a device that is full says so, and serves smaller calls on") {
  const TempFile file(cuda_affine_archive());
  const Model model = load_cuda(file.path());
  Context context(model);
  // The input fits, the output does not fit beside it.
  constexpr int64_t kRows = 9 << 20;
  const std::vector<float> large(4 * kRows);
  for (int round = 0; round < 2; ++round) {
    const aotpack::Error error = error_of([&] { (void)context.run({TensorView(large.data(), {kRows, 4})}); });
    CHECK(error.code() == AOTPACK_OUT_OF_MEMORY);
    CHECK(message_of(error) == "entry 'forward': out of memory");
    CHECK(values_of<float>(context.run({TensorView(kX.data(), {1, 4})})[0].dl())[0] == 3);
  }
}

TEST_CASE("cuda: launches and modules that fail leave the context usable") {
  const TempFile file(cuda_moves_archive());
  const Model model = load_cuda(file.path());
  Context context(model);
  const auto run = [&](float first) {
    const std::vector<float> x = {first, 2, 3, 4};
    return context.run({TensorView(x.data(), {4}), TensorView(&kK, {})});
  };
  const size_t live = (run(1), CONTROL(fake_cuda_live)());
  aotpack::Error error = error_of([&] { run(-1); });
  CHECK(error.code() == AOTPACK_EXECUTION_FAILED);
  CHECK(message_of(error) == "entry 'forward': x[0] is negative");
  error = error_of([&] { run(1000); });
  CHECK(error.code() == AOTPACK_DEVICE_FAILED);
  CHECK(has(error, "cuda:0: finding kernel 'no_such_kernel' in kernel 'device_assert' of "));
  for (const char* function : {"cuMemcpyAsync", "cuMemsetD8Async", "cuMemsetD2D32Async", "cuStreamSynchronize"}) {
    CONTROL(fake_cuda_fail)(function, 1, 1);
    error = error_of([&] { run(1); });
    CHECK(error.code() == AOTPACK_DEVICE_FAILED);
    CHECK(has(error, "failed: CUDA_ERROR_FAKE (1)"));
  }
  CONTROL(fake_cuda_recover)();
  CHECK(values_of<int64_t>(run(1)[0].dl())[0] == kK);
  CHECK(CONTROL(fake_cuda_live)() == live);
}
