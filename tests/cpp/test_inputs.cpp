// The checks of every call, and their words.
#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <numeric>

#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::TensorView;

namespace {

TensorView ids(int64_t batch, int64_t length) {
  static int64_t data[100000];
  return TensorView(data, {batch, length});
}

}  // namespace

TEST_CASE("ranges and equality of dims, in the user's names") {
  Context context =
      checker({dim("batch", 1, 64), dim("length", 1, 512)}, {value("ids", "int64", {size("batch"), size("length")}),
                                                             value("mask", "int64", {size("batch"), size("length")})});
  CHECK(refusal(context, {ids(4, 600), ids(4, 600)}) == "input 'ids': dim 1 ('length') must be in [1, 512], got 600");
  CHECK(refusal(context, {ids(65, 3), ids(65, 3)}) == "input 'ids': dim 0 ('batch') must be in [1, 64], got 65");
  CHECK(refusal(context, {ids(0, 3), ids(0, 3)}) == "input 'ids': dim 0 ('batch') must be in [1, 64], got 0");
  CHECK(refusal(context, {ids(-1, 3), ids(-1, 3)}) == "input 'ids': dim 0 ('batch') must be in [1, 64], got -1");
  CHECK(refusal(context, {ids(4, 3), ids(5, 3)}) == "input 'mask': dim 0 is 'batch' = 4 by input 'ids', got 5");
  CHECK(refusal(context, {ids(4, 3), ids(4, 2)}) == "input 'mask': dim 1 is 'length' = 3 by input 'ids', got 2");
  CHECK(refusal(context, {ids(4, 3)}) == "entry 'forward' takes 2 inputs (ids, mask), got 1");
  CHECK(context.run({ids(4, 3), ids(4, 3)}).size() == 1);
  CHECK(context.run({ids(64, 512), ids(64, 512)}).size() == 1);
}

TEST_CASE("a dim without an upper bound") {
  Context context = checker({dim("n", 2, Json())}, {value("x", "int64", {size("n")})});
  int64_t data[8] = {9, 9, 9, 9, 9, 9, 9, 9};
  CHECK(refusal(context, {TensorView(data, {1})}) == "input 'x': dim 0 ('n') must be at least 2, got 1");
  CHECK(context.run({TensorView(data, {8})}).size() == 1);
}

TEST_CASE("a dim that is used twice in one input") {
  Context context = checker({dim("n", 1, 9)}, {value("x", "int64", {size("n"), size("n")})});
  int64_t data[16] = {9};
  CHECK(refusal(context, {TensorView(data, {2, 3})}) == "input 'x': dim 1 is 'n' = 2 by input 'x', got 3");
  CHECK(context.run({TensorView(data, {3, 3})}).size() == 1);
}

TEST_CASE("sizes that are multiples and sums of dims") {
  Context context =
      checker({dim("n", 1, 9)}, {value("x", "int64", {size("n", 2, 1)}), value("y", "int64", {size("n")})});
  int64_t data[64] = {};
  // y is the plain use, so it gives n, although x comes first.
  CHECK(refusal(context, {TensorView(data, {5}), TensorView(data, {4})}) ==
        "input 'x': dim 0 must be 2*n + 1 = 9, got 5 ('n' = 4 by input 'y')");
  CHECK(context.run({TensorView(data, {9}), TensorView(data, {4})}).size() == 1);

  // Without a plain use it is solved for.
  Context solved =
      checker({dim("n", 1, 9)}, {value("x", "int64", {size("n", 2, -1)}), value("y", "int64", {size("n", 3)})});
  CHECK(refusal(solved, {TensorView(data, {4}), TensorView(data, {3})}) ==
        "input 'x': dim 0 must be 2*n - 1 with a whole 'n', got 4");
  CHECK(refusal(solved, {TensorView(data, {5}), TensorView(data, {8})}) ==
        "input 'y': dim 0 must be 3*n = 9, got 8 ('n' = 3 by input 'x')");
  CHECK(refusal(solved, {TensorView(data, {19}), TensorView(data, {30})}) ==
        "input 'x': dim 0 is 2*n - 1 = 19, so 'n' is 10, but it must be in [1, 9]");
  CHECK(solved.run({TensorView(data, {5}), TensorView(data, {9})}).size() == 1);
}

TEST_CASE("relations do not overflow") {
  Context context = checker({dim("n", 0, Json())},
                            {value("x", "int64", {size("n")}), value("y", "int64", {size("n", INT64_MAX, 5)})});
  int64_t data[8] = {};
  CHECK(refusal(context, {TensorView(data, {3}), TensorView(data, {1})}) ==
        "input 'y': dim 0 is 9223372036854775807*n + 5, which cannot be evaluated for 'n' = 3 by input 'x'");
  // An enormous size with stride 0 is a valid view of one element, and too large to bring into a dense layout.
  const TensorView vast(data, {int64_t{1} << 62, 4}, {0, 1});
  Context plain = checker({dim("n", 0, Json())}, {value("x", "int64", {size("n"), 4})});
  CHECK(refusal(plain, {vast}) == "input 'x' is larger than the address space");
}

TEST_CASE("static sizes, rank, dtype, device, data") {
  Context context = checker({}, {value("x", "int64", {2, 3})});
  int64_t data[6] = {9};
  CHECK(refusal(context, {TensorView(data, {2, 4})}) == "input 'x': dim 1 must be 3, got 4");
  CHECK(refusal(context, {TensorView(data, {6})}) == "input 'x': expected 2 dims [2, 3], got 1");
  CHECK(refusal(context, {TensorView(reinterpret_cast<float*>(data), {2, 3})}) ==
        "input 'x': expected int64, got float32");
  CHECK(refusal(context, {TensorView(data, DLDataType{kDLUInt, 16, 1}, {2, 3})}) ==
        "input 'x': expected int64, got uint16");
  CHECK(refusal(context, {TensorView(data, DLDataType{kDLInt, 64, 2}, {2, 3})}) ==
        "input 'x': expected int64, got int64x2");
  CHECK(refusal(context, {TensorView(data, DLDataType{99, 8, 1}, {2, 3})}) ==
        "input 'x': expected int64, got DLPack type 99 of 8 bits");
  CHECK(refusal(context, {TensorView(static_cast<int64_t*>(nullptr), {2, 3})}) == "input 'x' has no data");

  const auto raw = [&](const std::function<void(DLTensor*)>& change) {
    const TensorView view(data, {2, 3});
    DLTensor tensor = view.dl();
    change(&tensor);
    const DLTensor* inputs[1] = {&tensor};
    DLManagedTensorVersioned* outputs[1] = {reinterpret_cast<DLManagedTensorVersioned*>(1)};
    aotpack_status* status = aotpack_context_run(context.handle(), 0, inputs, 1, outputs, 1);
    CHECK(aotpack_status_code(status) == AOTPACK_INVALID_ARGUMENT);
    CHECK(outputs[0] == nullptr);
    const std::string message = aotpack_status_message(status);
    aotpack_status_release(status);
    return message;
  };
  CHECK(raw([](DLTensor* t) { t->device = {kDLCUDA, 1}; }) == "input 'x' must be on the CPU, got cuda:1");
  CHECK(raw([](DLTensor* t) { t->device.device_type = static_cast<DLDeviceType>(8); }) ==
        "input 'x' must be on the CPU, got DLPack device type 8");
  CHECK(raw([](DLTensor* t) { t->shape = nullptr; }) == "input 'x' has no shape");
  CHECK(raw([](DLTensor* t) { t->ndim = -1; }) == "input 'x': expected 2 dims [2, 3], got -1");
  CHECK(raw([](DLTensor* t) { t->ndim = INT32_MAX; }).find("expected 2 dims") != std::string::npos);

  DLManagedTensorVersioned* outputs[1];
  const DLTensor* missing[1] = {nullptr};
  aotpack_status* status = aotpack_context_run(context.handle(), 0, missing, 1, outputs, 1);
  CHECK(std::string(aotpack_status_message(status)) == "input 'x' is missing");
  aotpack_status_release(status);
}

TEST_CASE("inputs come into the model's layout whatever their strides and alignment") {
  for (const bool dynamic : {false, true}) {
    CAPTURE(dynamic);
    Context context = context_of(layout_archive(dynamic));
    const std::vector<int64_t> sizes = {2, 3, 2, 2};
    // What the module must find in memory: channels-last, where element (n, c, h, w) has the value of its row-major
    // index.
    std::vector<int32_t> expected;
    for (int n = 0; n < 2; ++n) {
      for (int h = 0; h < 2; ++h) {
        for (int w = 0; w < 2; ++w) {
          for (int c = 0; c < 3; ++c) expected.push_back(((n * 3 + c) * 2 + h) * 2 + w);
        }
      }
    }
    const auto memory = [&](const TensorView& view) {
      const aotpack::Tensor out = std::move(context.run({view})[0]);
      return std::vector<int32_t>(out.data<int32_t>(), out.data<int32_t>() + out.numel());
    };
    std::vector<int32_t> contiguous(24);
    std::iota(contiguous.begin(), contiguous.end(), 0);
    CHECK(memory(TensorView(contiguous.data(), sizes)) == expected);
    CHECK(memory(TensorView(contiguous.data(), sizes, {12, 4, 2, 1})) == expected);
    CHECK(memory(TensorView(expected.data(), sizes, {12, 1, 6, 3})) == expected);
    // Backwards.
    std::vector<int32_t> reversed(contiguous.rbegin(), contiguous.rend());
    CHECK(memory(TensorView(reversed.data() + 23, sizes, {-12, -4, -2, -1})) == expected);
    // With gaps.
    std::vector<int32_t> spread(48);
    for (size_t i = 0; i < 24; ++i) spread[2 * i] = contiguous[i];
    CHECK(memory(TensorView(spread.data(), sizes, {24, 8, 4, 2})) == expected);
    // Misaligned.
    std::vector<char> bytes(24 * 4 + 1);
    std::memcpy(bytes.data() + 1, expected.data(), 96);
    CHECK(memory(TensorView(bytes.data() + 1, aotpack::dtype_of<int32_t>(), sizes, {12, 1, 6, 3})) == expected);
    // Broadcast.
    const int32_t one = 7;
    CHECK(memory(TensorView(&one, sizes, {0, 0, 0, 0})) == std::vector<int32_t>(24, 7));
    // byte_offset.
    const TensorView view(expected.data(), sizes, {12, 1, 6, 3});
    DLTensor tensor = view.dl();
    tensor.data = bytes.data();
    tensor.byte_offset = 1;
    const DLTensor* inputs[1] = {&tensor};
    DLManagedTensorVersioned* raw = nullptr;
    REQUIRE(aotpack_context_run(context.handle(), 0, inputs, 1, &raw, 1) == nullptr);
    const aotpack::Tensor out(raw);
    CHECK(std::vector<int32_t>(out.data<int32_t>(), out.data<int32_t>() + 24) == expected);
  }
}

TEST_CASE("empty inputs need no data") {
  Context context = context_of(layout_archive(true));
  const TensorView empty(static_cast<int32_t*>(nullptr), {0, 3, 2, 2});
  CHECK(context.run({empty})[0].numel() == 0);
}

TEST_CASE("dims of size 1 may have any stride, without a copy") {
  Context context = context_of(layout_archive(true));
  const int32_t data[6] = {0, 1, 2, 3, 4, 5};
  const auto out = context.run({TensorView(data, {1, 6, 1, 1}, {-77, 1, int64_t{1} << 61, 0})});
  CHECK(std::vector<int32_t>(out[0].data<int32_t>(), out[0].data<int32_t>() + 6) ==
        std::vector<int32_t>{0, 1, 2, 3, 4, 5});
}
