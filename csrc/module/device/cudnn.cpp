#include "device/cudnn.h"

#include <algorithm>

#include "device/provided.h"

namespace aotpack::module::cudnn {

namespace {

LibraryTensor images(const Tensor* tensor, int64_t first, int64_t second, const int64_t* dims) {
  LibraryTensor view = {};
  view.data = tensor->data;
  view.dtype = tensor->dtype;
  view.rank = 5;
  view.sizes[0] = first;
  view.sizes[1] = second;
  std::copy_n(dims, 3, view.sizes + 2);
  return view;
}

LibraryTensor with_strides(LibraryTensor view, const int64_t* strides) {
  std::copy_n(strides, 5, view.strides);
  return view;
}

// With channels innermost.
LibraryTensor dense(LibraryTensor view) {
  int64_t step = 1;
  for (const int axis : {1, 4, 3, 2, 0}) {
    view.strides[axis] = step;
    step *= view.sizes[axis];
  }
  return view;
}

}  // namespace

bool compute(const Convolution& c) {
  const int64_t count = c.places / (c.sizes_out[0] * c.sizes_out[1] * c.sizes_out[2]);
  const int64_t rows = c.is_transposed ? c.groups * c.channels : c.groups * c.channels_out;
  const int64_t columns = c.is_transposed ? c.channels_out : c.channels;
  const auto results = [&](const Tensor* tensor) {
    return dense(images(tensor, count, c.groups * c.channels_out, c.sizes_out));
  };
  std::vector<LibraryTensor> tensors{with_strides(images(c.x, count, c.groups * c.channels, c.sizes), c.x_strides),
                                     with_strides(images(c.weight, rows, columns, c.kernel), c.weight_strides)};
  if (c.bias != nullptr) tensors.push_back(view_of(*c.bias));
  if (c.residual != nullptr) tensors.push_back(results(c.residual));
  tensors.push_back(results(c.out));
  std::vector<int64_t> numbers;
  for (const int64_t* dims : {c.steps, c.pads, c.dilations}) numbers.insert(numbers.end(), dims, dims + 3);
  for (const int64_t number : {c.groups, int64_t{c.is_transposed}, int64_t{c.activation}, int64_t{c.tf32},
                               int64_t{c.bias != nullptr}, int64_t{c.residual != nullptr}}) {
    numbers.push_back(number);
  }
  return provide("convolution", tensors, numbers);
}

}  // namespace aotpack::module::cudnn
