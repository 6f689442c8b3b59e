// Copies of tensors to, from and on CUDA devices, with the fake driver.
#include <doctest/doctest.h>

#include "cuda_chain.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Tensor;
using aotpack::TensorView;

TEST_CASE("cuda: a context copies tensors to its device") {
  const TempFile file(cuda_affine_archive());
  Context context(load_with(file.path(), {}));
  Context on_cpu = context_of(affine_archive());
  const Floats x = {1, 2, 3, 4, 5, 6};
  const Tensor far = context.to_device(TensorView(x.data(), {2, 3}, {1, 2}));
  CHECK(aotpack::same_device(far.device(), {kDLCUDA, 0}));
  CHECK(values_of<float>(far.dl()) == Floats{1, 3, 5, 2, 4, 6});
  CHECK(values_of<float>(context.to_device(far.view()).dl()) == Floats{1, 3, 5, 2, 4, 6});
  CHECK(context.to_device(TensorView(x.data(), {0})).dl().shape[0] == 0);
  CHECK(static_cast<const float*>(on_cpu.to_device(TensorView(x.data(), {6})).dl().data)[5] == 6);
  const DeviceBuffer other(Floats(4), 1);
  for (Context* of : {&context, &on_cpu}) {
    const aotpack::Error error = error_of([&] { of->to_device(view(other, {4})); });
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    CHECK(message_of(error).find("'from' must be on the CPU or c") == 0);
  }
}

TEST_CASE("cuda: tensors are copied between host and devices") {
  const Floats x = {1, 2, 3, 4, 5, 6};
  const DeviceBuffer far(Floats(6));
  Floats back(6);
  const auto copy = [](const TensorView& from, const TensorView& to) {
    const DLTensor a = from.dl(), b = to.dl();
    aotpack::detail::check(aotpack_tensor_copy(&a, &b));
  };
  copy(TensorView(x.data(), {2, 3}), view(far, {2, 3}, {1, 2}));
  CHECK(far.read<float>(6) == Floats{1, 4, 2, 5, 3, 6});
  copy(view(far, {6}), TensorView(back.data(), {6}));
  CHECK(back == Floats{1, 4, 2, 5, 3, 6});
  copy(TensorView(x.data(), {6}), TensorView(back.data(), {6}));
  CHECK(back == x);
  copy(TensorView(x.data(), {0}), TensorView(back.data(), {0}));
  const auto refused = [&](const TensorView& from, const TensorView& to) {
    const aotpack::Error error = error_of([&] { copy(from, to); });
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    return message_of(error);
  };
  const int64_t numbers[6] = {};
  CHECK(refused(TensorView(numbers, {6}), view(far, {6})) == "'from' and 'to' must have the same dtype and sizes");
  CHECK(refused(TensorView(x.data(), {5}), view(far, {6})) == "'from' and 'to' must have the same dtype and sizes");
  CHECK(refused(TensorView(x.data(), {6}), view(far, {6}, {0})).find("the strides of 'to' overlap") == 0);
  const aotpack::Error missing =
      error_of([&] { copy(TensorView(x.data(), {6}), TensorView(back.data(), {6}, {}, DLDevice{kDLCUDA, 9})); });
  CHECK(missing.code() == AOTPACK_UNSUPPORTED_TARGET);
}
