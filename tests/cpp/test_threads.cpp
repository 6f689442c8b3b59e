#include <doctest/doctest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::Tensor;
using aotpack::TensorView;

namespace {

constexpr int kThreads = 8;

template <typename Body>
void on_threads(Body&& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("8 threads call one model through 8 contexts; outputs are freed on other threads") {
  const TempFile file(affine_archive());
  const Model model = Model::load(file.path());
  std::atomic<int> wrong{0};
  std::mutex mutex;
  std::vector<Tensor> shared;  // from all threads, dropped by all threads
  on_threads([&](int self) {
    Context context(model);
    std::vector<float> x(64 * 4);
    for (int round = 0; round < 300; ++round) {
      const int64_t batch = 1 + (self * 31 + round) % 64;
      for (size_t i = 0; i < static_cast<size_t>(batch) * 4; ++i)
        x[i] = static_cast<float>(self * 1000 + round) + static_cast<float>(i);
      std::vector<Tensor> outputs = context.run({TensorView(x.data(), {batch, 4})});
      for (size_t i = 0; i < static_cast<size_t>(batch) * 4; ++i) {
        if (outputs[0].data<float>()[i] != 2 * x[i] + static_cast<float>(i % 4 + 1)) ++wrong;
      }
      const std::lock_guard lock(mutex);
      shared.push_back(std::move(outputs[0]));
      if (shared.size() > 20) shared.erase(shared.begin(), shared.begin() + 10);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("contexts of a model with state do not see each other's") {
  const TempFile file(mutate_archive());
  const Model model = Model::load(file.path());
  std::atomic<int> wrong{0};
  on_threads([&](int) {
    Context context(model, 1);
    float x[4] = {};
    for (int64_t round = 1; round <= 200; ++round) {
      if (context.run({aotpack::MutableTensorView(x, {4})})[0].data<int64_t>()[0] != 100 + round) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("models may be loaded and released on several threads at once") {
  const TempFile file(affine_archive());
  std::atomic<int> wrong{0};
  on_threads([&](int) {
    for (int round = 0; round < 5; ++round) {
      const Model model = Model::load(file.path());
      const float x[4] = {1, 1, 1, 1};
      if (Context(model).run({TensorView(x, {1, 4})})[0].data<float>()[0] != 3) ++wrong;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("two threads in one context: one of them is told, nothing breaks") {
  const TempFile file(affine_archive());
  Context context(Model::load(file.path()));
  std::atomic<int> refused{0};
  std::atomic<int> wrong{0};
  on_threads([&](int) {
    std::vector<float> x(64 * 4, 1.0f);
    for (int round = 0; round < 200; ++round) {
      try {
        if (context.run({TensorView(x.data(), {64, 4})})[0].data<float>()[0] != 3) ++wrong;
      } catch (const aotpack::Error& error) {
        if (error.code() != AOTPACK_INVALID_ARGUMENT) ++wrong;
        ++refused;
      }
    }
  });
  CHECK(wrong == 0);
  MESSAGE(refused.load() << " calls were refused");
}
