// Archives whose variants have several steps.
#pragma once

#include <vector>

#include "fixtures.h"

namespace aotpack::tests {

// What `steps` compute from x [batch, 4], and perhaps from further inputs, with w = {1, 2, 3, 4}; module 1 is
// 2x + w, module 2 is 3x + w.
inline ArchiveWriter with_steps(std::vector<Json> steps, std::vector<Json> values, std::vector<Json> outputs,
                                std::vector<Json> inputs = {value("x", "float32", {size("batch"), 4})}) {
  ArchiveWriter writer;
  const std::string weights = bytes_of<float>({1, 2, 3, 4}) + std::string(48, '\0') + bytes_of<int64_t>({100});
  writer.files = {{"weights/0", weights},
                  {"modules/affine", read_bytes(MODULE_affine)},
                  {"modules/affine_v2", read_bytes(MODULE_affine_v2)},
                  {"modules/alias", read_bytes(MODULE_alias)},
                  {"modules/mutate", read_bytes(MODULE_mutate)},
                  {"modules/failing", read_bytes(MODULE_failing)},
                  {"modules/same", read_bytes(MODULE_same)}};
  Json forward = entry("forward", {dim("batch", 0, 64)}, std::move(inputs), std::move(outputs), {});
  Json only = variant("default", {}, {});
  only["targets"].push(implementation("x86-64-v2", std::move(steps), std::move(values)));
  forward["variants"].push(only);
  writer.manifest = manifest({constant("w", "float32", {4}, {1}, 0, 0, weights.substr(0, 16)),
                              constant("count", "int64", {}, {}, 0, 64, weights.substr(64), true)},
                             {forward});
  return writer;
}

inline Json twice() { return module(1, {0}, {"alloc", "free"}); }
inline Json thrice() { return module(2, {0}, {"alloc", "free"}, "x86-64-v2"); }
inline Json alias() { return module(3, {0}, {"alloc", "free"}); }
inline Json mutate() { return module(4, {1}, {"alloc"}); }
inline Json failing() { return module(5, {}, {"alloc", "fail"}); }
inline Json same() { return module(6, {}, {"alloc"}); }

inline Json row(const char* name) { return value(name, "float32", {size("batch"), 4}); }
inline Json row_between(const char* name, Json device = 0) {
  return intermediate(name, "float32", {size("batch"), 4}, std::move(device));
}

// y = 3(2x + w) + w in two steps, h between them.
inline ArchiveWriter chain() {
  return with_steps({step(twice(), {reference("input", 0)}, {reference("value", 0)}),
                     step(thrice(), {reference("value", 0)}, {reference("output", 0)})},
                    {row_between("h")}, {row("y")});
}

inline std::vector<float> floats(const aotpack::Tensor& tensor) {
  size_t count = 1;
  for (const int64_t size : tensor.shape()) count *= static_cast<size_t>(size);
  return std::vector<float>(tensor.data<float>(), tensor.data<float>() + count);
}

inline std::vector<float> ramp(size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return values;
}

// 3(2x + w) + w
inline std::vector<float> chained(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = 6 * x[i] + 4 * static_cast<float>(i % 4 + 1);
  return y;
}

}  // namespace aotpack::tests
