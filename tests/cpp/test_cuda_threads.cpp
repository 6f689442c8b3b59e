// Threads, contexts and devices at once, with the fake driver.
#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "cuda_weights_fixture.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::LoadOptions;
using aotpack::Model;
using aotpack::TensorView;

TEST_CASE("cuda: 4 threads on 3 devices, with contexts of their own") {
  const TempFile file(cuda_affine_archive({"cuda-sm_80"}));
  std::vector<Model> models;
  for (int device = 0; device < 3; ++device) {
    LoadOptions options;
    options.device = {kDLCUDA, device};
    models.push_back(Model::load(file.path(), options));
  }
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 100; ++round) {
        // The first calls of all load the kernels.
        const Model& model = models[(thread + static_cast<size_t>(round)) % models.size()];
        Context context(model);
        const auto base = static_cast<float>(thread * 1000 + static_cast<size_t>(round));
        const std::vector<float> x = {base, base, base, base};
        std::vector<float> y(4);
        context.run_into({TensorView(x.data(), {1, 4})}, {aotpack::MutableTensorView(y.data(), {1, 4})});
        wrong[thread] += y != std::vector<float>{3 * base + 1, 3 * base + 2, 3 * base + 3, 3 * base + 4};
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("cuda: threads call while others replace the weights: every call sees one set, and memory is steady") {
  const TempFile file(cuda_updatable_archive());
  constexpr uint32_t kSets = 3;
  std::vector<CudaWeights> sets = {CudaWeights()};
  for (uint32_t seed = 1; seed < kSets; ++seed) sets.push_back(random_cuda_weights(seed));
  std::vector<Floats> answers;
  for (const CudaWeights& set : sets) answers.push_back(expected(set).y);
  Model model = load_with(file.path(), 2);
  std::vector<Context> contexts;
  for (int i = 0; i < 3; ++i) contexts.emplace_back(model);
  for (Context& context : contexts) (void)call(context);
  const size_t live = CONTROL(fake_cuda_live_bytes)();
  std::atomic<bool> done{false};
  std::atomic<int> calls{0};
  std::vector<int> wrong(contexts.size());
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < contexts.size(); ++thread) {
    threads.emplace_back([&, thread] {
      const Floats x = {1, 2, 3, 4};
      const int64_t k = 3;
      Floats y(4), z(4);
      while (!done) {
        contexts[thread].run_into(
            {TensorView(x.data(), {1, 4}), TensorView(&k, {})},
            {aotpack::MutableTensorView(y.data(), {1, 4}), aotpack::MutableTensorView(z.data(), {1, 4})});
        wrong[thread] += std::find(answers.begin(), answers.end(), y) == answers.end();
        ++calls;
      }
    });
  }
  std::vector<std::thread> updaters;
  for (uint32_t updater = 0; updater < 2; ++updater) {
    updaters.emplace_back([&, updater] {
      for (uint32_t round = 0; round < 4; ++round) {
        if (round % 4 == 3) {
          model.reset_weights();
        } else {
          model.update_weights(sets[1 + (round + updater) % (kSets - 1)].views());
        }
      }
    });
  }
  for (std::thread& updater : updaters) updater.join();
  model.update_weights(sets[1].views());
  done = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(contexts.size()));
  CHECK(calls > 0);
  CHECK(model.weight_generation() == 9);
  for (Context& context : contexts) CHECK(call(context) == expected(sets[1]));
  CHECK(CONTROL(fake_cuda_live_bytes)() <= live + (1u << 20));
}
