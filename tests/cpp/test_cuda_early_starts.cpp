// Kernels that may start before those before them have ended, with the fake driver: which ones, and when none.
#include <doctest/doctest.h>

#include <cstring>

#include "cuda_chain.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::Tensor;

namespace {

// Of each call of cuda_waits_archive, by number: 2, 5 and 6. What is before 1 is not the call's, before 3 is a copy,
// and 4 does not wait.
constexpr uint64_t kEarly = 3;

struct Waits {
  explicit Waits(std::optional<int> graphs = {}) : file(cuda_waits_archive()), model(load_with(file.path(), graphs)) {}
  // How many kernels of a call might start early.
  uint64_t run(Context& context, float first) const {
    const DeviceBuffer far(Floats{first, 2, 3, 4, 5, 6, 7, 8});
    const uint64_t before = CONTROL(fake_cuda_early_starts)();
    const std::vector<Tensor> out = context.run({view(far, {2, 4})});
    context.synchronize();
    const uint64_t after = CONTROL(fake_cuda_early_starts)();
    CHECK(values_of<float>(out[0].dl()) == Floats{first + 6, 14, 21, 28, 11, 18, 25, 32});
    return after - before;
  }
  TempFile file;
  Model model;
};

}  // namespace

TEST_CASE("cuda early starts: of plain launches, kernels that wait after kernels of the same call") {
  const Waits waits(0);
  Context context(waits.model), other(waits.model);
  const uint64_t before = launches();
  for (int round = 0; round < 3; ++round) CHECK(waits.run(context, static_cast<float>(round)) == kEarly);
  // On a stream that others use, too.
  other.set_stream(context.stream());
  CHECK(waits.run(other, 1) == kEarly);
  CHECK(waits.run(context, 2) == kEarly);
  CHECK(launches() == before);
}

TEST_CASE("cuda early starts: the same in graphs, also where addresses change") {
  const Waits waits;
  Context context(waits.model);
  const uint64_t before = launches(), updated = updates();
  for (int round = 0; round < 8; ++round) CHECK(waits.run(context, static_cast<float>(round)) == kEarly);
  CHECK(launches() == before + 7);
  const DeviceBuffer elsewhere(Floats(64));
  std::vector<std::vector<Tensor>> kept;
  for (int round = 0; round < 3; ++round) kept.push_back(context.run({view(elsewhere, {2, 4})}));
  CHECK(updates() > updated);
  CHECK(waits.run(context, 9) == kEarly);
}

TEST_CASE("cuda early starts: none where no kernel says that it waits") {
  const Chain chain;
  Context context(chain.model);
  const uint64_t before = CONTROL(fake_cuda_early_starts)();
  for (int round = 0; round < 3; ++round) (void)chain.run(context, 2, 3);
  CHECK(CONTROL(fake_cuda_early_starts)() == before);
}

TEST_CASE("cuda early starts: a driver that fails") {
  const char* const functions[] = {"cuGraphAddDependencies_v2", "cuLaunchKernelEx"};
  for (const char* function : functions) {
    for (int n = 1; n <= 3; ++n) {
      const size_t live = CONTROL(fake_cuda_live)();
      {
        const Waits waits;
        Context context(waits.model);
        CONTROL(fake_cuda_fail)(function, n, 1);
        if (std::strcmp(function, "cuLaunchKernelEx") == 0) {
          const DeviceBuffer far(Floats{1, 2, 3, 4});
          const aotpack::Error error = error_of([&] { (void)context.run({view(far, {1, 4})}); });
          CHECK(message_of(error).find("launching kernel 'affine'") != std::string::npos);
        }
        // Plain launches serve where the graph fails.
        for (int round = 0; round < 4; ++round) CHECK(waits.run(context, static_cast<float>(round)) == kEarly);
        CONTROL(fake_cuda_recover)();
      }
      CHECK(CONTROL(fake_cuda_live)() == live);
      CHECK(CONTROL(fake_cuda_graphs)() == 0);
    }
  }
}
