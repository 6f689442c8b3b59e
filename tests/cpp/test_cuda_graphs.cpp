// Calls as graphs on CUDA devices, with the fake driver: when there is one, and that answers are those of plain
// launches.
#include <doctest/doctest.h>

#include "cuda_chain.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::Tensor;
using aotpack::TensorView;

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

TEST_CASE("cuda graphs: seeds are those of plain launches") {
  const Chain with, without(0);
  std::vector<std::vector<uint32_t>> drawn;
  for (const Chain* chain : {&with, &without}) {
    Context context(chain->model);
    context.set_seed(7);
    const uint64_t before = launches();
    for (int round = 0; round < 10; ++round) {
      (void)chain->run(context, 2, 3);
      if (round % 2 == 1) drawn.push_back(values_of<uint32_t>(chain->run(context, 1, 95)[1].dl()));
    }
    CHECK((launches() > before) == (chain == &with));
  }
  CHECK(std::equal(drawn.begin(), drawn.begin() + 5, drawn.begin() + 5));
  CHECK(drawn[0] != drawn[1]);
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
