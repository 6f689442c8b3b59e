// An archive for a CUDA device whose weights can be replaced, and what its entries compute.
#pragma once

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cuda_chain.h"

namespace aotpack::tests {

inline constexpr int64_t kBulkRows = 5 << 18;

struct CudaWeights {
  Floats weight = {1, 2, 3, 4};
  Floats gain = {1, 1, 2, 2};
  Floats total = {100};                       // state
  Floats bulk = Floats(kBulkRows * 4, 0.5f);  // [kBulkRows, 4], of 20 MiB: a block of its own on the device

  Floats packed() const {
    Floats result;
    for (size_t i = 0; i < weight.size(); ++i) result.push_back(weight[i] * gain[i]);
    return result;
  }
  NamedViews views() const {
    return {{"weight", TensorView(weight.data(), {4})},
            {"gain", TensorView(gain.data(), {4})},
            {"total", TensorView(total.data(), {1})},
            {"bulk", TensorView(bulk.data(), {kBulkRows, 4})}};
  }
};

inline CudaWeights random_cuda_weights(uint32_t seed) {
  std::mt19937 generator(seed);
  const auto draw = [&] { return static_cast<float>(generator() % 100 + 1); };
  CudaWeights made;
  for (Floats* values : {&made.weight, &made.gain, &made.total}) {
    for (float& value : *values) value = draw();
  }
  std::fill(made.bulk.begin(), made.bulk.end(), draw());
  return made;
}

// forward(x, k) of cuda_chain_archive with packed = weight * gain in the place of w; plain(x) = 2 * x + weight;
// bulk(x) = 2 * x + bulk[0]; count(x) of cuda_mutate_archive. The fold runs on the host.
inline ArchiveWriter cuda_updatable_archive(const CudaWeights& weights = {}) {
  ArchiveWriter writer;
  std::string segment;
  const auto add = [&](const char* name, const Floats& values, std::vector<Json> shape, bool mutated = false) {
    const std::string bytes = bytes_of(values);
    const auto offset = static_cast<int64_t>(segment.size());
    segment += bytes + std::string((64 - bytes.size() % 64) % 64, '\0');
    std::vector<Json> stride = {1};
    if (shape.size() == 2) stride.insert(stride.begin(), 4);
    return constant(name, "float32", std::move(shape), std::move(stride), 0, offset, bytes, mutated);
  };
  std::vector<Json> constants = {add("weight", weights.weight, {4}), add("gain", weights.gain, {4}),
                                 add("packed", weights.packed(), {4}), add("total", weights.total, {1}, true),
                                 add("bulk", weights.bulk, {kBulkRows, 4})};
  writer.files = {{"weights/0", segment}};
  const auto named = [&](const std::string& name, Json module) {
    for (size_t i = writer.files.size() - 2; i < writer.files.size(); ++i) writer.files[i].path += "." + name;
    return module;
  };
  const auto only = [](Json module, size_t inputs, size_t outputs) {
    Json made = variant("default", {}, {});
    made["targets"] = targets({std::move(module)}, inputs, outputs);
    return made;
  };
  const AssetBytes affine{"affine.cubin", fake_cubin("sm_90", "affine")};
  const AssetBytes ptx{"affine.ptx", fake_ptx("sm_90", "affine")};
  const Json rows = value("x", "float32", {size("batch"), 4});
  const Json batch = dim("batch", 1, 1 << 20);
  const Json forward = named("forward", cuda_module(writer, MODULE_cuda_chain, {2}, "cuda-sm_90", {affine}));
  const Json plain = named("plain", cuda_module(writer, MODULE_cuda_affine, {0}, "cuda-sm_90", {affine, ptx}));
  const Json bulk = named("bulk", cuda_module(writer, MODULE_cuda_affine, {4}, "cuda-sm_90", {affine, ptx}));
  const Json count = named("count", cuda_module(writer, MODULE_cuda_mutate, {3}, "cuda-sm_90",
                                                {{"increment.cubin", fake_cubin("sm_90", "increment")}}));
  writer.files.push_back({"modules/x86-64/fold", read_bytes(MODULE_updatable_fold)});
  Json fold_module = module(static_cast<int64_t>(writer.files.size()) - 1, {}, {"alloc", "fail"});
  Json fold_variant = variant("default", {}, {});
  fold_variant["targets"] = Json::array({implementation(
      "cuda-sm_90", {step(std::move(fold_module), references("input", 2), references("output", 1), Json())})});
  Json fold = entry("fold", {}, {value("weight", "float32", {4}), value("gain", "float32", {4})},
                    {value("packed", "float32", {4})}, {std::move(fold_variant)});
  for (const char* list : {"inputs", "outputs"}) {
    for (Json& each : fold[list].items()) each["device"] = Json();
  }
  writer.manifest =
      manifest(std::move(constants),
               {entry("forward", {batch}, {rows, number("k", "int")},
                      {value("y", "float32", {size("batch"), 4}), value("z", "float32", {size("batch"), 4})},
                      {only(forward, 2, 2)}),
                entry("plain", {batch}, {rows}, {value("y", "float32", {size("batch"), 4})}, {only(plain, 1, 1)}),
                entry("bulk", {batch}, {rows}, {value("y", "float32", {size("batch"), 4})}, {only(bulk, 1, 1)}),
                entry("count", {}, {value("x", "float32", {4}, {}, true)},
                      {value("view", "float32", {4}), value("sum", "float32", {1})}, {only(count, 1, 2)}),
                std::move(fold)});
  writer.manifest["weights"] = Json::object(
      {{"tensors", Json::array({weight("weight", "float32", {4}, 0), weight("gain", "float32", {4}, 1),
                                weight("total", "float32", {1}, 3), weight("bulk", "float32", {kBulkRows, 4}, 4)})},
       {"fold", Json::object({{"entry", "fold"}, {"results", Json::array({2})}})}});
  return writer;
}

// What forward, plain and bulk give for x = {1, 2, 3, 4} and k = 3.
struct CudaResult {
  Floats y, z, plain, bulk;
  bool operator==(const CudaResult& other) const = default;
};

inline CudaResult expected(const CudaWeights& weights) {
  CudaResult result;
  const Floats packed = weights.packed();
  for (size_t i = 0; i < 4; ++i) {
    const auto x = static_cast<float>(i + 1);
    result.z.push_back(x + packed[i]);
    result.y.push_back(2 * (3 * (x + packed[i]) + packed[i]) + packed[i]);
    result.plain.push_back(2 * x + weights.weight[i]);
    result.bulk.push_back(2 * x + weights.bulk[i]);
  }
  return result;
}

inline CudaResult call(Context& context) {
  const Floats x = {1, 2, 3, 4};
  const int64_t k = 3;
  const std::vector<Tensor> forward = context.run({TensorView(x.data(), {1, 4}), TensorView(&k, {})});
  const std::vector<Tensor> plain = context.run({TensorView(x.data(), {1, 4})}, "plain");
  const std::vector<Tensor> bulk = context.run({TensorView(x.data(), {1, 4})}, "bulk");
  return {values_of<float>(forward[0].dl()), values_of<float>(forward[1].dl()), values_of<float>(plain[0].dl()),
          values_of<float>(bulk[0].dl())};
}

}  // namespace aotpack::tests
