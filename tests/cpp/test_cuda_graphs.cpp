// Calls as graphs on CUDA devices, with the fake driver: when there is one, and that answers are those of plain
// launches.
#include <doctest/doctest.h>

#include <map>
#include <thread>

#include "cuda_fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::LoadOptions;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::Tensor;
using aotpack::TensorView;

namespace {

using Floats = std::vector<float>;

Model load_with(const std::string& path, std::optional<int> graphs) {
  LoadOptions options;
  options.device = {kDLCUDA, 0};
  options.graphs = graphs;
  return Model::load(path, options);
}

TensorView view(const DeviceBuffer& buffer, aotpack::Shape shape) {
  return TensorView(static_cast<const float*>(buffer.data()), std::move(shape), {}, buffer.device());
}

uint64_t launches() { return CONTROL(fake_cuda_calls)("cuGraphLaunch"); }
uint64_t made() { return CONTROL(fake_cuda_calls)("cuGraphInstantiateWithFlags"); }

uint64_t updates() {
  return CONTROL(fake_cuda_calls)("cuGraphExecKernelNodeSetParams_v2") +
         CONTROL(fake_cuda_calls)("cuGraphExecMemcpyNodeSetParams") +
         CONTROL(fake_cuda_calls)("cuGraphExecMemsetNodeSetParams");
}

// What cuda_chain_archive computes.
Floats chain_of(const Floats& x, int64_t k) {
  Floats y;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto w = static_cast<float>(1 + i % 4);
    y.push_back(2 * (static_cast<float>(k) * (x[i] + w) + w) + w);
  }
  return y;
}

// A loaded cuda_chain_archive and calls of it that are checked.
struct Chain {
  explicit Chain(std::optional<int> graphs = {}) : file(cuda_chain_archive()), model(load_with(file.path(), graphs)) {}
  std::vector<Tensor> run(Context& context, int64_t rows, int64_t k, float first = 0) const {
    Floats x(static_cast<size_t>(4 * rows));
    for (size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<float>(i % 64);
    const DeviceBuffer far(x);
    std::vector<Tensor> out = context.run({view(far, {rows, 4}), TensorView(&k, {})});
    CHECK(values_of<float>(out[0].dl()) == chain_of(x, k));
    return out;
  }
  TempFile file;
  Model model;
};

}  // namespace

TEST_CASE("cuda graphs: the second call with the same sizes and numbers is one launch") {
  const Chain chain;
  Context context(chain.model);
  uint64_t before = launches();
  (void)chain.run(context, 3, 5);
  CHECK(launches() == before);
  const uint64_t plain = CONTROL(fake_cuda_calls)("cuLaunchKernel");
  for (int round = 0; round < 20; ++round) (void)chain.run(context, 3, 5, static_cast<float>(round));
  CHECK(launches() == before + 20);
  CHECK(CONTROL(fake_cuda_calls)("cuLaunchKernel") == plain);
  CHECK(CONTROL(fake_cuda_execs)() == 1);
  // Another number and another size are other work.
  before = launches();
  (void)chain.run(context, 3, 6);
  (void)chain.run(context, 2, 5);
  CHECK(launches() == before);
  (void)chain.run(context, 3, 6);
  (void)chain.run(context, 2, 5);
  (void)chain.run(context, 3, 5);
  CHECK(launches() == before + 3);
}

TEST_CASE("cuda graphs: results that are kept stay, and inputs may be anywhere") {
  const Chain chain;
  Context context(chain.model);
  std::vector<std::vector<Tensor>> kept;
  std::vector<Floats> expected;
  for (int round = 0; round < 30; ++round) {
    kept.push_back(chain.run(context, 2, 3, static_cast<float>(round)));
    expected.push_back(values_of<float>(kept.back()[0].dl()));
    if (round % 7 == 3) kept.erase(kept.begin() + 1), expected.erase(expected.begin() + 1);
    for (size_t i = 0; i < kept.size(); ++i) CHECK(values_of<float>(kept[i][0].dl()) == expected[i]);
  }
  // A result as the next input; inputs and results on the host.
  Floats near = {1, 2, 3, 4, 5, 6, 7, 8}, out(8), second(8);
  const int64_t k = 3;
  const std::vector<Tensor> once = context.run({TensorView(near.data(), {2, 4}), TensorView(&k, {})});
  const std::vector<Tensor> twice = context.run({once[0].view(), TensorView(&k, {})});
  CHECK(values_of<float>(twice[0].dl()) == chain_of(chain_of(near, k), k));
  const uint64_t before = launches();
  context.run_into({TensorView(near.data(), {2, 4}), TensorView(&k, {})},
                   {MutableTensorView(out.data(), {2, 4}), MutableTensorView(second.data(), {2, 4})});
  CHECK(out == chain_of(near, k));
  CHECK(second == Floats{2, 4, 6, 8, 6, 8, 10, 12});
  CHECK(launches() == before + 1);
}

TEST_CASE("cuda graphs: nothing is updated where the memory is that of the last call") {
  const Chain chain;
  Context context(chain.model);
  const DeviceBuffer x(Floats{1, 2, 3, 4});
  const int64_t k = 2;
  const auto call = [&] { (void)context.run({view(x, {1, 4}), TensorView(&k, {})}); };
  for (int round = 0; round < 4; ++round) call();
  const uint64_t before = updates();
  for (int round = 0; round < 10; ++round) call();
  CHECK(updates() == before);
  // Only the node that reads x.
  (void)chain.run(context, 1, k);
  CHECK(updates() == before + 1);
}

TEST_CASE("cuda graphs: nothing is updated where addresses alternate") {
  const Chain chain;
  Context context(chain.model);
  const DeviceBuffer x(Floats{1, 2, 3, 4});
  const int64_t k = 2;
  std::vector<Tensor> out;
  const auto call = [&] { out = context.run({view(x, {1, 4}), TensorView(&k, {})}); };
  for (int round = 0; round < 6; ++round) call();
  const uint64_t before = updates(), instances = made();
  for (int round = 0; round < 10; ++round) {
    call();
    CHECK(values_of<float>(out[0].dl()) == chain_of({1, 2, 3, 4}, k));
  }
  CHECK(updates() == before);
  CHECK(made() == instances);
  CHECK(CONTROL(fake_cuda_execs)() == 2);
  CHECK(CONTROL(fake_cuda_graphs)() == 1);
  // Any others are served too.
  std::vector<std::vector<Tensor>> kept;
  for (int round = 0; round < 10; ++round) kept.push_back(chain.run(context, 1, k, static_cast<float>(round)));
  CHECK(CONTROL(fake_cuda_execs)() == 2);
}

TEST_CASE("cuda graphs: state is written to in place") {
  const TempFile file(cuda_mutate_archive());
  const Model model = load_with(file.path(), {});
  Context context(model), other(model);
  const uint64_t before = launches();
  for (int round = 1; round <= 6; ++round) {
    const DeviceBuffer far(Floats{1, 2, 3, 4});
    const std::vector<Tensor> out =
        context.run({MutableTensorView(static_cast<float*>(far.data()), {4}, {}, far.device())});
    CHECK(far.read<float>(4) == Floats{2, 3, 4, 5});
    CHECK(values_of<float>(out[0].dl()) == Floats{2, 3, 4, 5});
    CHECK(values_of<float>(out[1].dl())[0] == 100 + static_cast<float>(round));
  }
  CHECK(launches() == before + 5);
  Floats near(4);
  const auto total = [&](Context& of) {
    return values_of<float>(of.run({MutableTensorView(near.data(), {4})})[1].dl())[0];
  };
  const float seven = 7;
  context.load_state({{context.state()[0].first, TensorView(&seven, {1})}});
  CHECK(total(context) == 8);
  CHECK(total(other) == 101);
  CHECK(total(context) == 9);
  context.reset();
  for (const float expected : {101.0f, 102.0f, 103.0f}) CHECK(total(context) == expected);
  CHECK(total(other) == 102);
}

TEST_CASE("cuda graphs: work that depends on the device or on seeds is launched plainly") {
  for (const int64_t k : {96, 97, 98}) {
    const Chain chain;
    Context context(chain.model);
    const uint64_t before = launches();
    for (int round = 0; round < 5; ++round) (void)chain.run(context, 1, k);
    // Once and for all.
    for (int round = 0; round < 5; ++round) (void)chain.run(context, 1, 5);
    CHECK(launches() == before);
  }
  const TempFile file(cuda_moves_archive());
  Context context(load_with(file.path(), {}));
  const DeviceBuffer x(Floats{1, 2, 3, 4});
  const int64_t k = 5;
  for (int round = 0; round < 5; ++round) {
    const std::vector<Tensor> out = context.run({view(x, {4}), TensorView(&k, {})});
    CHECK(values_of<float>(out[2].dl()) == Floats{0, 3, 1, 4, 2, 5});
  }
  CHECK(CONTROL(fake_cuda_execs)() == 0);
}

TEST_CASE("cuda graphs: a context keeps so many, and gives back all") {
  for (const int limit : {0, 1, 3}) {
    const Chain chain(limit);
    Context context(chain.model);
    for (int round = 0; round < 3; ++round) {
      for (int64_t rows = 1; rows <= 6; ++rows) {
        for (int repeat = 0; repeat < 3; ++repeat) (void)chain.run(context, rows, 2);
      }
      CHECK(CONTROL(fake_cuda_execs)() <= static_cast<size_t>(2 * limit));
      CHECK(CONTROL(fake_cuda_graphs)() == static_cast<size_t>(limit));
    }
  }
  CHECK(CONTROL(fake_cuda_execs)() == 0);
  // Sizes that come and go do not make a graph each time; one that is not used any more makes room.
  const Chain chain(2);
  Context context(chain.model);
  uint64_t before = made();
  for (int call = 0; call < 1000; ++call) (void)chain.run(context, 1 + call * 7 % 11 % 5, 2);
  CHECK(made() - before < 10);
  before = launches();
  for (int call = 0; call < 400; ++call) (void)chain.run(context, 6 + call % 2, 2);
  CHECK(launches() - before > 100);
  const TempFile file(cuda_chain_archive());
  for (const int wrong : {-2, 4097}) {
    const aotpack::Error error = error_of([&] { load_with(file.path(), wrong); });
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    CHECK(message_of(error) == "aotpack_load_options.graphs must be in [-1, 4096]");
  }
}

TEST_CASE("cuda graphs: a stream of the caller's, also one that is captured") {
  const Chain chain;
  Context context(chain.model), lender(chain.model);
  context.set_stream(lender.stream());
  const DeviceBuffer x(Floats{1, 2, 3, 4});
  const int64_t k = 2;
  const uint64_t before = launches();
  std::vector<std::vector<Tensor>> kept;
  for (int round = 0; round < 6; ++round) kept.push_back(context.run({view(x, {1, 4}), TensorView(&k, {})}));
  CHECK(launches() == before + 5);
  CHECK(CONTROL(fake_cuda_pending)(lender.stream()) > 0);
  context.synchronize();
  for (const auto& out : kept) CHECK(values_of<float>(out[0].dl()) == chain_of({1, 2, 3, 4}, k));
  CONTROL(fake_cuda_set_capturing)(lender.stream(), 1);
  (void)context.run({view(x, {1, 4}), TensorView(&k, {})});
  CHECK(launches() == before + 5);
  CONTROL(fake_cuda_set_capturing)(lender.stream(), 0);
  (void)context.run({view(x, {1, 4}), TensorView(&k, {})});
  CHECK(launches() == before + 6);
  context.set_stream(reinterpret_cast<void*>(1));
  const std::vector<Tensor> out = context.run({view(x, {1, 4}), TensorView(&k, {})});
  context.synchronize();
  CHECK(values_of<float>(out[0].dl()) == chain_of({1, 2, 3, 4}, k));
  context.set_stream(nullptr);
  (void)chain.run(context, 1, k);
  CHECK(launches() == before + 8);
}

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
