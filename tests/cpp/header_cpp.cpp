// The C++ header is C++17.
#include "aotpack/aotpack.hpp"

std::vector<aotpack::Tensor> probe(aotpack::Context& context) {
  const float x[4] = {};
  return context.run({aotpack::TensorView(x, {1, 4})});
}
