// The runtime from C++17, header-only over aotpack.h.
//
//   aotpack::Model model = aotpack::Model::load("digits.aotpack");
//   aotpack::Context context(model);
//   std::vector<float> image(8 * 8);
//   std::vector<aotpack::Tensor> outputs = context.run({aotpack::TensorView(image.data(), {1, 1, 8, 8})});
//   const float* scores = outputs[0].data<float>();
//
// Errors are thrown as aotpack::Error. Threads: any number of threads may use a Model, and one thread at a time a
// Context. A Tensor may outlive both and may be destroyed on any thread.
#pragma once

#include "aotpack/context.hpp"
#include "aotpack/model.hpp"
#include "aotpack/pipeline.hpp"
#include "aotpack/tensors.hpp"
