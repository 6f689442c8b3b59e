// Kernels of the operators in tests/export/custom_ops/test_custom_kernels.py.
#include "kernels.h"

#include <algorithm>
#include <stdexcept>

using namespace aotpack::op;

namespace {

// Numbers that a test can compare, in the order in which they are put.
struct Numbers {
  std::vector<double> values;
  template <typename T>
  void put(const T& value) {
    values.push_back(static_cast<double>(value));
  }
  void put(const Tensor& tensor) {
    put(tensor.rank());
    for (int64_t size : tensor.sizes()) put(size);
    dispatch<float, double, int64_t, bool, BFloat16, Float16>(tensor.dtype(), [&](auto zero) {
      using T = decltype(zero);
      // Element by element, through whatever strides there are.
      std::vector<int64_t> index(static_cast<size_t>(tensor.rank()), 0);
      for (int64_t n = tensor.numel(); n > 0; --n) {
        int64_t offset = 0;
        for (size_t d = 0; d < index.size(); ++d) offset += index[d] * tensor.strides()[d];
        put(static_cast<double>(tensor.data<T>()[offset]));
        for (size_t d = index.size(); d-- > 0 && ++index[d] == tensor.sizes()[d];) index[d] = 0;
      }
    });
  }
  void put(std::string_view text) {
    put(text.size());
    for (unsigned char c : text) put(c);
  }
  void put(const Scalar& scalar) {
    put(static_cast<int>(scalar.kind()));
    put(scalar.as_double());
  }
  template <typename T>
  void put(const std::span<const T>& list) {
    put(list.size());
    for (const T& value : list) put(value);
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  Tensor tensor(Call& call) const {
    const Tensor result = call.empty({static_cast<int64_t>(values.size())}, DType::float64);
    std::copy(values.begin(), values.end(), result.mutable_data<double>());
    return result;
  }
};

template <typename... Values>
Tensor numbers(Call& call, const Values&... values) {
  Numbers numbers;
  (numbers.put(values), ...);
  return numbers.tensor(call);
}

}  // namespace

namespace kernels {

Tensor tensors(Call& call, const Tensor& x, const std::optional<Tensor>& y, std::span<const Tensor> list,
               std::span<const std::optional<Tensor>> optionals) {
  return numbers(call, x, y, list, optionals);
}

Tensor scalars(Call& call, Tensor x, int64_t i, std::optional<int64_t> oi, double f, std::optional<double> of, bool b,
               const std::optional<bool>& ob, std::string_view s, std::optional<std::string_view> os, Scalar n,
               DType dtype, std::optional<DType> od) {
  return numbers(call, x, i, oi, f, of, b, ob, s, os, n, static_cast<int>(dtype), od.has_value(),
                 od ? static_cast<int>(*od) : -1);
}

Tensor lists(Call& call, const Tensor& x, std::span<const int64_t> i, const std::optional<std::span<const int64_t>>& oi,
             std::span<const double> f, std::optional<std::span<const double>> of, std::span<const bool> b,
             std::span<const std::string_view> s) {
  return numbers(call, x, i, oi, f, of, b, s);
}

std::tuple<Tensor, Tensor> both(Call& call, const Tensor& x) {
  const Tensor doubled = call.empty(x.sizes(), DType::float32), count = call.empty({}, DType::int64);
  const auto* values = call.contiguous(x).data<float>();
  std::transform(values, values + x.numel(), doubled.mutable_data<float>(), [](float v) { return 2 * v; });
  *count.mutable_data<int64_t>() = x.numel();
  return {doubled, count};
}

std::vector<Tensor> rows(Call& call, const Tensor& x) {
  std::vector<Tensor> results;
  const auto* values = call.contiguous(x).data<float>();
  for (int64_t i = 0; i < x.size(0); ++i) {
    results.push_back(call.empty({x.size(1)}, DType::float32));
    std::copy_n(values + i * x.size(1), x.size(1), results.back().mutable_data<float>());
  }
  return results;
}

void increase(Call&, const Tensor& x, const std::optional<Tensor>& y, std::span<const Tensor> more, double by) {
  auto add = [&](const Tensor& tensor) {
    check(tensor.is_contiguous(), "must be contiguous");
    auto* values = tensor.mutable_data<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] += static_cast<float>(by);
  };
  add(x);
  if (y) add(*y);
  for (const Tensor& tensor : more) add(tensor);
}

Tensor mm(Call& call, const Tensor& x) { return numbers(call, x.size(0) + 1); }

Tensor parallel(Call& call, const Tensor& x, int64_t fail_at) {
  const auto* values = call.contiguous(x).data<float>();
  const Tensor result = call.empty(x.sizes(), DType::float32);
  auto* out = result.mutable_data<float>();
  call.parallel_for(x.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i == fail_at) throw Error("element " + std::to_string(i) + " is not wanted");
      out[i] = values[i] + static_cast<float>(i);
    }
  });
  return result;
}

Tensor draw(Call& call, const Tensor& x) {
  const Tensor result = call.empty(x.sizes(), DType::int64);
  std::fill_n(result.mutable_data<int64_t>(), x.numel(), static_cast<int64_t>(call.seed() >> 1));
  return result;
}

Tensor wrong(Call& call, const Tensor& x, int64_t how) {
  const Tensor right = call.empty(x.sizes(), x.dtype());
  std::fill_n(right.mutable_data<float>(), x.numel(), 1.0f);
  switch (how) {
    case 1:
      return call.empty({x.numel() + 1}, x.dtype());
    case 2:
      return call.empty(x.sizes(), DType::float64);
    case 3:
      return x;
    case 4:
      *x.mutable_data<float>() = 0;
      return right;
    case 5:
      static_cast<void>(x.data<double>());
      return right;
    case 6:
      throw std::runtime_error("the kernel's own");
    case 7:
      throw 7;
    case 8:
      call.parallel_for(1000, 1, [&](int64_t, int64_t) { static_cast<void>(call.empty({1}, DType::float32)); });
      return right;
    case 9:
      static_cast<void>(call.scratch<double>(int64_t{1} << 58));
      return right;
    case 10:
      static_cast<void>(x.size(2));
      return right;
    default:
      return right;
  }
}

Tensor last_dim_first(Call& call, const Tensor& x) {
  // Row-major, where the fake implementation says channels last.
  const Tensor result = call.empty(x.sizes(), DType::float32);
  const auto* values = call.contiguous(x).data<float>();
  std::transform(values, values + x.numel(), result.mutable_data<float>(), [](float v) { return v + 1; });
  return result;
}

Tensor cube(Call& call, const Tensor& x) {
  const Tensor result = call.empty(x.sizes(), DType::float32);
  const auto* values = call.contiguous(x).data<float>();
  std::transform(values, values + x.numel(), result.mutable_data<float>(), [](float v) { return v * v * v; });
  return result;
}

Tensor cube_backward(Call& call, const Tensor& gradient, const Tensor& x) {
  const Tensor result = call.empty(x.sizes(), DType::float32);
  const auto* values = call.contiguous(x).data<float>();
  const auto* factors = call.contiguous(gradient).data<float>();
  auto* out = result.mutable_data<float>();
  for (int64_t i = 0; i < x.numel(); ++i) out[i] = factors[i] * 3 * values[i] * values[i];
  return result;
}

}  // namespace kernels
