// The CUDA driver as it is found, targets, and copies between layouts on a device.
#include <doctest/doctest.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "base/status.h"
#include "base/strided.h"
#include "cuda_fixtures.h"
#include "hal/cuda/device.h"
#include "hal/cuda/strided.h"
#include "model/devices.h"

using namespace aotpack::tests;
using namespace aotpack::runtime;
using cuda::Capability;
using cuda::Driver;

namespace {

std::string driver_error(const std::string& library) {
  try {
    const Driver driver(library);
  } catch (const aotpack::runtime::Error& error) {
    CHECK(error.code() == AOTPACK_UNSUPPORTED_TARGET);
    return error.message();
  }
  FAIL("the driver was accepted");
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a CUDA driver that is not there, not one, or too old") {
  CHECK(has(driver_error("/nowhere/libcuda.so.1"), "no CUDA driver was found: /nowhere/libcuda.so.1 cannot be opened"));
  CHECK(has(driver_error("/nowhere/libcuda.so.1"), "set AOTPACK_LIBCUDA"));
  CHECK(has(driver_error(MODULE_affine), "is not a CUDA driver"));
  setenv("FAKE_CUDA_VERSION", "11080", 1);
  CHECK(driver_error(FAKE_LIBCUDA) == std::string("the CUDA driver is too old: ") + FAKE_LIBCUDA +
                                          " supports CUDA 11.8, aotpack needs a driver for CUDA 12.0 or later");
  setenv("FAKE_CUDA_VERSION", "12030", 1);
  CHECK_FALSE(Driver(FAKE_LIBCUDA).has_graphs());
  CHECK(Driver(FAKE_LIBCUDA).has_early_starts());
  setenv("FAKE_CUDA_VERSION", "12020", 1);
  CHECK_FALSE(Driver(FAKE_LIBCUDA).has_early_starts());
  unsetenv("FAKE_CUDA_VERSION");
  const Driver driver(FAKE_LIBCUDA);
  CHECK(driver.has_graphs());
  CHECK(driver.version() == 12040);
  CHECK(driver.device_count() == 3);
  CHECK(driver.describe(700) == "CUDA_ERROR_ILLEGAL_ADDRESS (700): an illegal memory access was encountered");
  CONTROL(fake_cuda_fail)("cuInit", 1, 100);
  CHECK(has(driver_error(FAKE_LIBCUDA), "the CUDA driver finds no device"));
  CONTROL(fake_cuda_fail)("cuInit", 1, 804);
  CHECK(has(driver_error(FAKE_LIBCUDA), "the CUDA driver cannot be initialised: CUDA_ERROR_FAKE (804)"));
  CONTROL(fake_cuda_recover)();
}

TEST_CASE("targets of CUDA devices") {
  const auto runs = [](Capability device) { return cuda::runnable_targets(device); };
  using Names = std::vector<std::string_view>;
  CHECK(runs({7, 5}).empty());
  CHECK(runs({8, 0}) == Names{"cuda-sm_80"});
  CHECK(runs({8, 7}) == Names{"cuda-sm_86", "cuda-sm_80"});
  CHECK(runs({8, 9}) == Names{"cuda-sm_89", "cuda-sm_86", "cuda-sm_80"});
  CHECK(runs({9, 0}) == Names{"cuda-sm_90", "cuda-sm_89", "cuda-sm_86", "cuda-sm_80"});
  CHECK(runs({10, 3}) == Names{"cuda-sm_89", "cuda-sm_86", "cuda-sm_80"});
  CHECK(runs({12, 0}) == Names{"cuda-sm_120", "cuda-sm_89", "cuda-sm_86", "cuda-sm_80"});
  CHECK(cuda::form_for("cuda-sm_80", {8, 9}) == cuda::Form::kBinary);
  CHECK(cuda::form_for("cuda-sm_80", {9, 0}) == cuda::Form::kIntermediate);
  CHECK(cuda::form_for("cuda-sm_90", {9, 0}) == cuda::Form::kBinary);
  CHECK_FALSE(cuda::form_for("cuda-sm_90", {10, 0}));
  CHECK_FALSE(cuda::form_for("cuda-sm_86", {8, 0}));
  CHECK(cuda::missing_for("cuda-sm_86", {8, 0}) == "compute capability 8.6 or later");
  CHECK(cuda::missing_for("cuda-sm_90", {10, 0}) == "compute capability 9.0 exactly");
  CHECK(cuda::missing_for("x86-64-v3", {9, 0}) == "the CPU");
  CHECK(cuda::missing_for("cuda-sm_999", {9, 0}) == "an unknown target");
  CHECK(host_device().missing("cuda-sm_90") == "a CUDA device");
}

TEST_CASE("copies between layouts on a device, and between it and the host, move every element") {
  Device& device = find_device({kDLCUDA, 0});
  const std::unique_ptr<Stream> stream = device.make_stream();
  std::mt19937 random(7);
  const auto below = [&](int64_t bound) { return static_cast<int64_t>(random() % static_cast<uint64_t>(bound)); };
  constexpr size_t kBytes = 1 << 16;
  for (int round = 0; round < 400; ++round) {
    const size_t item = size_t{1} << below(5);
    const auto rank = static_cast<int32_t>(below(5));
    int64_t sizes[4], strides[2][4];
    for (int32_t axis = 0; axis < rank; ++axis) sizes[axis] = 1 + below(4);
    for (auto& each : strides) {
      std::vector<int32_t> order(static_cast<size_t>(rank));
      for (int32_t axis = 0; axis < rank; ++axis) order[static_cast<size_t>(axis)] = axis;
      std::shuffle(order.begin(), order.end(), random);
      int64_t run = 1 + below(2);
      for (const int32_t axis : order) {
        each[axis] = run;
        run *= sizes[axis] + below(2);
      }
    }
    const size_t shift = static_cast<size_t>(below(2)) * (item > 1 ? item / 2 : 1);
    std::vector<uint8_t> source(kBytes), expected(kBytes, 9);
    for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
    strided_copy(expected.data() + shift, strides[0], source.data() + shift, strides[1], sizes, rank, item);
    const bool far_to = round % 3 != 1;
    const bool far_from = round % 3 != 0;
    const DeviceBuffer to_far(std::vector<uint8_t>(kBytes, 9)), from_far(source);
    std::vector<uint8_t> to_near(kBytes, 9);
    char* to = far_to ? static_cast<char*>(to_far.data()) : reinterpret_cast<char*>(to_near.data());
    char* from = far_from ? static_cast<char*>(from_far.data()) : reinterpret_cast<char*>(source.data());
    stream->copy_strided(to + shift, strides[0], from + shift, strides[1], sizes, rank, item);
    stream->wait();
    CHECK((far_to ? to_far.read<uint8_t>(kBytes) : to_near) == expected);
  }
  int near[2] = {1, 2};
  const int64_t two[1] = {2}, forth[1] = {1}, back[1] = {-1};
  int result[2] = {};
  stream->copy_strided(result + 1, back, near, forth, two, 1, sizeof(int));
  CHECK(result[0] == 2);
}

TEST_CASE("plans of copies merge what lies together") {
  char* const a = reinterpret_cast<char*>(0x10000);
  char* const b = reinterpret_cast<char*>(0x20000);
  const int64_t sizes[3] = {2, 3, 4}, rows[3] = {12, 4, 1}, columns[3] = {1, 2, 6}, gaps[3] = {24, 8, 1};
  CHECK(cuda::plan_strided_copy(a, rows, b, rows, sizes, 3, 4).is_dense());
  CHECK(cuda::plan_strided_copy(a, columns, b, columns, sizes, 3, 4).is_dense());
  CHECK(cuda::plan_strided_copy(a, gaps, b, gaps, sizes, 3, 4).rank == 2);
  CHECK(cuda::plan_strided_copy(a, rows, b, columns, sizes, 3, 4).rank == 3);
  CHECK(cuda::plan_strided_copy(a, rows, b, rows, sizes, 3, 16).unit == 8);
  CHECK(cuda::plan_strided_copy(a + 2, rows, b, columns, sizes, 3, 16).unit == 2);
  CHECK(cuda::plan_strided_copy(a + 2, rows, b, columns, sizes, 3, 16).count == 24 * 8);
  const int64_t empty[1] = {0};
  CHECK(cuda::plan_strided_copy(a, rows, b, rows, empty, 1, 4).count == 0);
}
