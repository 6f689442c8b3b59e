// How many functions of the CUDA driver a call needs in a steady state, with the fake driver.
#include <doctest/doctest.h>

#include "cuda_chain.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::TensorView;

namespace {

// Of the tenth call.
template <typename Call>
uint64_t driver_calls(Call call) {
  for (int round = 0; round < 9; ++round) call();
  const uint64_t before = CONTROL(fake_cuda_all_calls)();
  call();
  return CONTROL(fake_cuda_all_calls)() - before;
}

// The context of device 0 as the current one of this thread, as in a program that uses CUDA itself.
class MadeCurrent {
 public:
  MadeCurrent() {
    void* context = nullptr;
    find<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
    find<int (*)(void*)>("cuCtxPushCurrent_v2")(context);
  }
  ~MadeCurrent() {
    void* context = nullptr;
    find<int (*)(void**)>("cuCtxPopCurrent_v2")(&context);
  }

 private:
  template <typename Function>
  static Function find(const char* name) {
    return reinterpret_cast<Function>(find_control(name));
  }
};

}  // namespace

TEST_CASE("cuda: how many driver calls a steady call makes") {
  const TempFile file(cuda_chain_archive());
  const DeviceBuffer x(Floats{1, 2, 3, 4}), y(Floats(4)), z(Floats(4));
  const auto written = [](const DeviceBuffer& buffer) {
    return MutableTensorView(static_cast<float*>(buffer.data()), {1, 4}, {}, buffer.device());
  };
  const int64_t k = 2;
  const Model model = load_with(file.path(), 8), plain = load_with(file.path(), 0);
  Context own(model), borrowed(model), lender(model), launched(plain);
  borrowed.set_stream(lender.stream());
  const auto run = [&](Context& context) {
    return driver_calls([&] { (void)context.run({view(x, {1, 4}), TensorView(&k, {})}); });
  };
  const auto run_into = [&](Context& context) {
    return driver_calls([&] { context.run_into({view(x, {1, 4}), TensorView(&k, {})}, {written(y), written(z)}); });
  };
  // The context is made current and popped; one launch; one wait.
  CHECK(run(own) == 5);
  const MadeCurrent current;
  // The current context is read; one launch; one wait.
  CHECK(run(own) == 3);
  // No wait, but the caller might capture the stream.
  CHECK(run(borrowed) == 3);
  // Two copies more.
  CHECK(run_into(own) == 5);
  CHECK(run_into(borrowed) == 5);
  // Seven operations.
  CHECK(run(launched) == 9);
}

TEST_CASE("cuda: a stream of one's own that has nothing to do is not waited for") {
  const TempFile file(cuda_chain_archive());
  const Model model = load_with(file.path(), 8);
  Context context(model);
  const DeviceBuffer x(Floats{1, 2, 3, 4});
  const int64_t k = 2;
  (void)context.run({view(x, {1, 4}), TensorView(&k, {})});
  const uint64_t before = CONTROL(fake_cuda_calls)("cuStreamSynchronize");
  context.synchronize();
  CHECK(CONTROL(fake_cuda_calls)("cuStreamSynchronize") == before);
}
