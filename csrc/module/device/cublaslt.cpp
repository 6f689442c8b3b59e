#include "device/cublaslt.h"

#include <algorithm>
#include <bit>

#include "device/provided.h"

namespace aotpack::module::cublaslt {

namespace {

LibraryTensor view_of(const Matrices& matrices, int64_t batch, int64_t rows, int64_t columns) {
  LibraryTensor view = {};
  view.data = matrices.data;
  view.dtype = matrices.dtype;
  view.rank = 3;
  view.sizes[0] = batch;
  view.sizes[1] = rows;
  view.sizes[2] = columns;
  std::copy_n(matrices.strides, 3, view.strides);
  return view;
}

}  // namespace

bool compute(const Product& p) {
  const auto results = [&](const Tensor* tensor) {
    return view_of(matrices(tensor, p.m * p.n, p.n, 1), p.batch, p.m, p.n);
  };
  std::vector<LibraryTensor> tensors{view_of(p.a, p.batch, p.m, p.k), view_of(p.b, p.batch, p.k, p.n)};
  if (p.bias != nullptr) tensors.push_back(module::view_of(*p.bias));
  if (p.residual != nullptr) tensors.push_back(results(p.residual));
  tensors.push_back(results(p.out));
  return provide("product", tensors,
                 {p.activation, p.tf32 ? 1 : 0, std::bit_cast<int64_t>(p.alpha), p.bias != nullptr ? 1 : 0,
                  p.residual != nullptr ? 1 : 0});
}

}  // namespace aotpack::module::cublaslt
