// Threads, contexts and devices at once, with the fake driver.
#include <doctest/doctest.h>

#include <thread>

#include "cuda_fixtures.h"

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
