// What the tests of weight updates share: sets of weights for `updatable_archive`, and what a call gives with them.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "fixtures.h"

namespace aotpack::tests {

inline UpdatableWeights random_weights(uint32_t seed) {
  std::mt19937 generator(seed);
  const auto draw = [&] { return static_cast<float>(generator() % 1000 + 1); };
  UpdatableWeights weights;
  for (auto* values : {&weights.weight, &weights.gain, &weights.bias, &weights.matrix}) {
    std::generate(values->begin(), values->end(), draw);
  }
  weights.count = {static_cast<int64_t>(seed) * 1000};
  weights.bulk.assign(weights.bulk.size(), draw());
  return weights;
}

inline const int64_t kUnused = 7;

inline NamedViews views_of(const UpdatableWeights& weights) {
  return {{"weight", TensorView(weights.weight.data(), {4})},    {"gain", TensorView(weights.gain.data(), {4})},
          {"bias", TensorView(weights.bias.data(), {4})},        {"tied", TensorView(weights.bias.data(), {4})},
          {"matrix", TensorView(weights.matrix.data(), {2, 3})}, {"count", TensorView(weights.count.data(), {1})},
          {"bulk", TensorView(weights.bulk.data(), {kBulk})},    {"unused", TensorView(&kUnused, {})}};
}

// What a call gives for x = {1, 2, 3, 4}.
struct Result {
  std::vector<float> y, weight, sum;
  bool operator==(const Result& other) const { return y == other.y && weight == other.weight && sum == other.sum; }
};

inline Result expected(const UpdatableWeights& weights) {
  Result result{{}, weights.weight, {0}};
  for (size_t i = 0; i < 4; ++i) {
    const float packed = weights.weight[i] * weights.gain[i];
    result.y.push_back(static_cast<float>(i + 1) * packed + weights.bias[i]);
  }
  for (int k = 0; k < 16; ++k) {  // in the module's order: the same roundings
    for (size_t i = 0; i < 4; ++i) result.sum[0] += weights.weight[i] * weights.gain[i] + weights.bias[i];
    for (size_t i = 0; i < 6; ++i) result.sum[0] += static_cast<float>(i) * weights.matrix[i];
  }
  return result;
}

inline std::vector<float> floats(const Tensor& tensor) {
  return std::vector<float>(tensor.data<float>(), tensor.data<float>() + tensor.numel());
}

inline Result call(Context& context, const char* entry = "forward", int64_t* count = nullptr, float* bulk = nullptr) {
  const float x[4] = {1, 2, 3, 4};
  const std::vector<Tensor> outputs = context.run({TensorView(x, {1, 4})}, entry);
  if (count != nullptr) *count = *outputs[3].data<int64_t>();
  if (bulk != nullptr) *bulk = *outputs[4].data<float>();
  return {floats(outputs[0]), floats(outputs[1]), floats(outputs[2])};
}

inline std::string refusal(Model& model, const NamedViews& views) {
  const aotpack::Error error = error_of([&] { model.update_weights(views); });
  CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
  return message_of(error);
}

inline NamedViews replaced(NamedViews views, const std::string& name, TensorView view) {
  for (auto& [key, value] : views) {
    if (key == name) value = view;
  }
  return views;
}

inline NamedViews without(NamedViews views, const std::string& name) {
  views.erase(std::remove_if(views.begin(), views.end(), [&](const auto& item) { return item.first == name; }),
              views.end());
  return views;
}

}  // namespace aotpack::tests
