// Calls of a model of several kernels on a CUDA device, with the fake driver.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cuda_fixtures.h"

namespace aotpack::tests {

using Floats = std::vector<float>;

inline Model load_with(const std::string& path, std::optional<int> graphs) {
  LoadOptions options;
  options.device = {kDLCUDA, 0};
  options.graphs = graphs;
  return Model::load(path, options);
}

inline TensorView view(const DeviceBuffer& buffer, Shape shape, Shape strides = {}) {
  return TensorView(static_cast<const float*>(buffer.data()), std::move(shape), std::move(strides), buffer.device());
}

inline uint64_t launches() { return CONTROL(fake_cuda_calls)("cuGraphLaunch"); }
inline uint64_t made() { return CONTROL(fake_cuda_calls)("cuGraphInstantiateWithFlags"); }

inline uint64_t updates() {
  return CONTROL(fake_cuda_calls)("cuGraphExecKernelNodeSetParams_v2") +
         CONTROL(fake_cuda_calls)("cuGraphExecMemcpyNodeSetParams") +
         CONTROL(fake_cuda_calls)("cuGraphExecMemsetNodeSetParams");
}

// What cuda_chain_archive computes.
inline Floats chain_of(const Floats& x, int64_t k) {
  Floats y;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto w = static_cast<float>(1 + i % 4);
    y.push_back(2 * (static_cast<float>(k) * (x[i] + w) + w) + w);
  }
  return y;
}

// A loaded cuda_chain_archive and calls of it that are checked.
struct Chain {
  explicit Chain(std::optional<int> graphs = {}) : file(cuda_chain_archive()), model(load_with(file.path(), graphs)) {}
  std::vector<Tensor> run(Context& context, int64_t rows, int64_t k, float first = 0) const {
    Floats x(static_cast<size_t>(4 * rows));
    for (size_t i = 0; i < x.size(); ++i) x[i] = first + static_cast<float>(i % 64);
    const DeviceBuffer far(x);
    std::vector<Tensor> out = context.run({view(far, {rows, 4}), TensorView(&k, {})});
    CHECK(values_of<float>(out[0].dl()) == chain_of(x, k));
    return out;
  }
  TempFile file;
  Model model;
};

}  // namespace aotpack::tests
