// Work that modules give to libraries: cuFFT without a GPU, on the fake driver.
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <cstdlib>
#include <thread>

#include "cuda_chain.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::Tensor;
using aotpack::TensorView;

namespace {

using Spectrum = std::vector<std::complex<float>>;

template <typename Result>
Result ask_cufft(const char* name) {
  static void* const library = dlopen(FAKE_PROVIDERS "/libcufft.so.12", RTLD_NOW);
  REQUIRE(library != nullptr);
  return reinterpret_cast<Result (*)()>(dlsym(library, name))();
}
uint64_t cufft_calls() { return ask_cufft<uint64_t>("fake_cufft_calls"); }
size_t cufft_plans() { return ask_cufft<size_t>("fake_cufft_plans"); }

Floats signal(int64_t rows) {
  Floats x;
  for (int64_t i = 0; i < 8 * rows; ++i) x.push_back(static_cast<float>((i * 37) % 11));
  return x;
}

// Whether it is the spectrum of signal(); of zeros if not `by_library`.
bool is_right(const Spectrum& found, bool by_library) {
  const Floats x = signal(static_cast<int64_t>(found.size() / 5));
  for (size_t i = 0; i < found.size(); ++i) {
    std::complex<double> sum = 0;
    for (size_t j = 0; by_library && j < 8; ++j) {
      sum += std::polar<double>(x[i / 5 * 8 + j], -2 * 3.14159265358979 * static_cast<double>(j * (i % 5)) / 8);
    }
    if (std::abs(sum - std::complex<double>(found[i])) > 1e-4) return false;
  }
  return true;
}

Spectrum run(Context& context, int64_t rows, int64_t k = 0) {
  const DeviceBuffer x(signal(rows));
  const std::vector<Tensor> out = context.run({view(x, {rows, 8}), TensorView(&k, {})});
  context.synchronize();
  return values_of<std::complex<float>>(out[0].dl());
}

}  // namespace

TEST_CASE("cuda: a library does the work, in each call: such calls are not recorded") {
  const TempFile file(cuda_provide_archive());
  const Model model = load_with(file.path(), 8);
  const size_t plans = cufft_plans();
  {
    Context context(model);
    const uint64_t graphs = made();
    for (int64_t round = 0; round < 6; ++round) {
      const uint64_t before = cufft_calls();
      CHECK(is_right(run(context, 1 + round % 2), true));
      CHECK(cufft_calls() == before + 1);
    }
    CHECK(made() == graphs);
    CHECK(cufft_plans() == plans + 2);
    // Plans stay when the stream changes.
    Context lender(model);
    context.set_stream(lender.stream());
    CHECK(is_right(run(context, 2), true));
    CHECK(cufft_plans() == plans + 2);
  }
  CHECK(cufft_plans() == plans);
}

TEST_CASE("cuda: an operation that no library has is the module's own, which can be recorded") {
  const TempFile file(cuda_provide_archive());
  Context context(load_with(file.path(), 8));
  const uint64_t before = cufft_calls(), graphs = made();
  for (int round = 0; round < 4; ++round) CHECK(is_right(run(context, 3, 1), false));
  CHECK(made() == graphs + 1);
  CHECK(cufft_calls() == before);
}

TEST_CASE("cuda: a library that fails, and memory that is not there") {
  const TempFile file(cuda_provide_archive());
  const Model model = load_with(file.path(), 0);
  Context context(model);
  CHECK(is_right(run(context, 1), true));
  setenv("FAKE_PROVIDER_FAIL", "cufftExecR2C", 1);
  try {
    (void)run(context, 1);
    FAIL("no error");
  } catch (const aotpack::Error& error) {
    CHECK(error.code() == AOTPACK_DEVICE_FAILED);
    CHECK(std::string(error.what()).find("cuFFT 12.0: cufftExecR2C fails with CUFFT_EXEC_FAILED (6)") !=
          std::string::npos);
  }
  setenv("FAKE_PROVIDER_FAIL", "cufftMakePlanMany64", 1);
  CHECK(is_right(run(context, 7), false));
  unsetenv("FAKE_PROVIDER_FAIL");
  // A size without a plan stays without one.
  CHECK(is_right(run(context, 7), false));
  CHECK(is_right(run(context, 1), true));
  const size_t live = CONTROL(fake_cuda_live)();
  for (int n = 1; n < 6; ++n) {
    Context fresh(model);
    CONTROL(fake_cuda_fail)("cuMemAlloc_v2", n, 2);
    try {
      CHECK(is_right(run(fresh, 1), true));
    } catch (const aotpack::Error& error) {
      CHECK(error.code() == AOTPACK_OUT_OF_MEMORY);
    }
    CONTROL(fake_cuda_recover)();
    CHECK(is_right(run(fresh, 1), true));
  }
  CHECK(CONTROL(fake_cuda_live)() == live);
}

TEST_CASE("cuda: threads with contexts of their own use one library") {
  const TempFile file(cuda_provide_archive());
  const Model model = load_with(file.path(), 8);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t thread = 0; thread < wrong.size(); ++thread) {
    threads.emplace_back([&, thread] {
      Context context(model);
      for (int64_t round = 0; round < 20; ++round) {
        wrong[thread] += !is_right(run(context, 1 + (static_cast<int64_t>(thread) + round) % 5), true);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(4));
}
