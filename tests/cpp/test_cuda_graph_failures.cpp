// Graphs on CUDA devices when something fails, and with threads, with the fake driver.
#include <doctest/doctest.h>

#include <thread>

#include "cuda_chain.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::MutableTensorView;
using aotpack::Tensor;
using aotpack::TensorView;

TEST_CASE("cuda graphs: a driver that fails at any call") {
  const char* const functions[] = {"cuKernelGetParamInfo",
                                   "cuGraphCreate",
                                   "cuGraphAddKernelNode_v2",
                                   "cuGraphAddMemcpyNode",
                                   "cuGraphAddMemsetNode",
                                   "cuGraphInstantiateWithFlags",
                                   "cuGraphExecKernelNodeSetParams_v2",
                                   "cuGraphExecMemcpyNodeSetParams",
                                   "cuGraphLaunch",
                                   "cuMemAlloc_v2"};
  for (const char* function : functions) {
    for (const int result : {1, 2}) {
      for (int n = 1; n < 4; ++n) {
        const size_t live = CONTROL(fake_cuda_live)();
        {
          const Chain chain;
          Context context(chain.model);
          (void)chain.run(context, 2, 3);
          CONTROL(fake_cuda_fail)(function, n, result);
          std::vector<std::vector<Tensor>> kept;
          // Plain launches serve where graphs fail.
          for (int round = 0; round < 6; ++round) kept.push_back(chain.run(context, 2, 3, static_cast<float>(round)));
          CONTROL(fake_cuda_recover)();
          (void)chain.run(context, 2, 3);
        }
        CHECK(CONTROL(fake_cuda_live)() == live);
        CHECK(CONTROL(fake_cuda_execs)() == 0);
        CHECK(CONTROL(fake_cuda_graphs)() == 0);
      }
    }
  }
}

TEST_CASE("cuda graphs: a module that fails, after its graph was made") {
  const Chain chain;
  Context context(chain.model);
  for (int round = 0; round < 3; ++round) (void)chain.run(context, 1, 2);
  const int64_t k = 99;
  const DeviceBuffer x(Floats(4));
  for (int round = 0; round < 3; ++round) {
    const aotpack::Error error = error_of([&] { (void)context.run({view(x, {1, 4}), TensorView(&k, {})}); });
    CHECK(message_of(error) == "entry 'forward': k is 99");
    (void)chain.run(context, 1, 2);
  }
}

TEST_CASE("cuda graphs: threads with contexts of their own, at steady memory") {
  const Chain chain;
  std::vector<Context> contexts;
  for (int i = 0; i < 4; ++i) contexts.emplace_back(chain.model);
  std::vector<int> wrong(4);
  const auto work = [&](size_t thread, int calls) {
    for (int round = 0; round < calls; ++round) {
      const auto base = static_cast<float>(thread * 1000 + static_cast<size_t>(round));
      const int64_t rows = 1 + round % 3, k = round % 2;
      const Floats x(static_cast<size_t>(4 * rows), base);
      Floats y(x.size()), z(x.size());
      contexts[thread].run_into({TensorView(x.data(), {rows, 4}), TensorView(&k, {})},
                                {MutableTensorView(y.data(), {rows, 4}), MutableTensorView(z.data(), {rows, 4})});
      wrong[thread] += y != chain_of(x, k);
    }
  };
  const auto all = [&](int calls) {
    std::vector<std::thread> threads;
    for (size_t thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread, calls);
    for (std::thread& thread : threads) thread.join();
  };
  const uint64_t before = launches();
  all(20);
  const size_t live = CONTROL(fake_cuda_live_bytes)();
  all(200);
  CHECK(wrong == std::vector<int>(4));
  CHECK(CONTROL(fake_cuda_live_bytes)() == live);
  CHECK(launches() - before > 800);
}
