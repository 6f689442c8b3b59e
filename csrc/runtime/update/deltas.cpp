#include "update/deltas.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <string_view>
#include <unordered_map>

#include "aotpack/module_abi.h"
#include "base/dltensor.h"
#include "base/floats.h"
#include "base/status.h"
#include "base/strided.h"

namespace aotpack::runtime {
namespace {

std::string type_text(const DLTensor& tensor) {
  return dtype_name(tensor.dtype) + " " + shape_text(tensor.shape, static_cast<size_t>(tensor.ndim));
}

const DType* floating_dtype(const DLTensor& factor) {
  const DType* dtype = find_dtype(factor.dtype);
  return dtype != nullptr && is_floating(*dtype) ? dtype : nullptr;
}

// Why a factor cannot be read, or "".
std::string problem_of(const char* role, const DLTensor* factor) {
  const std::string start = std::string(role) + " ";
  if (factor == nullptr) return start + "is NULL";
  if (!is_on_host(factor->device)) return start + "must be on the CPU, got " + device_name(factor->device);
  if (factor->ndim < 0 || factor->ndim > AOTPACK_MAX_RANK || (factor->ndim > 0 && factor->shape == nullptr)) {
    return start + "has no shape";
  }
  if (floating_dtype(*factor) == nullptr) return start + "is " + type_text(*factor) + ", which is not floating-point";
  const int64_t* sizes = factor->shape;
  if (std::any_of(sizes, sizes + factor->ndim, [](int64_t size) { return size < 0; })) return start + "has no shape";
  int64_t compact[AOTPACK_MAX_RANK];
  const int64_t* strides = nullptr;
  if (!strides_of(*factor, compact, &strides)) return start + "is larger than the address space";
  const bool empty = std::find(sizes, sizes + factor->ndim, 0) != sizes + factor->ndim;
  if (!empty && data_of(*factor) == nullptr) return start + "has no data";
  return "";
}

// Whether `up` times `down` has the weight's shape.
bool fits(const std::vector<int64_t>& shape, const DLTensor& down, const DLTensor& up) {
  const auto rank = static_cast<int32_t>(shape.size());
  return rank >= 2 && down.ndim == rank && up.ndim >= 2 && up.shape[0] == shape[0] && up.shape[1] == down.shape[0] &&
         std::all_of(up.shape + 2, up.shape + up.ndim, [](int64_t size) { return size == 1; }) &&
         std::equal(shape.begin() + 1, shape.end(), down.shape + 1);
}

std::string problem_of(const WeightRecord& weight, const aotpack_weight_delta& delta) {
  const std::string start = "'" + weight.name + "': ";
  if (!is_floating(*weight.dtype)) return start + "a delta of a weight that is " + weight.dtype->name;
  for (const auto& [role, factor] : {std::pair("down", delta.down), std::pair("up", delta.up)}) {
    std::string problem = problem_of(role, factor);
    if (!problem.empty()) return start + problem;
  }
  if (!fits(weight.shape, *delta.down, *delta.up)) {
    return start + "the weight has the shape " + shape_text(weight.shape.data(), weight.shape.size()) +
           ", which the delta's factors do not make: down " + type_text(*delta.down) + ", up " + type_text(*delta.up);
  }
  if (!std::isfinite(delta.scale)) return start + "the scale of a delta must be finite";
  return "";
}

// The row-major elements of a factor.
std::vector<double> elements_of(const DLTensor& factor) {
  const DType& dtype = *floating_dtype(factor);
  std::vector<int64_t> dense(static_cast<size_t>(factor.ndim));
  size_t count = 1;
  for (size_t i = dense.size(); i-- > 0;) {
    dense[i] = static_cast<int64_t>(count);
    // Strides may be 0, so a view can have more elements than there is memory.
    if (__builtin_mul_overflow(count, static_cast<size_t>(factor.shape[i]), &count) || count > SIZE_MAX / 32) {
      throw std::bad_alloc();
    }
  }
  std::vector<char> bytes(count * dtype.size);
  copy_given(factor, dtype, bytes.data(), dense.data(), bytes.size());
  std::vector<double> elements(count);
  to_doubles(dtype, bytes.data(), count, elements.data());
  return elements;
}

}  // namespace

std::vector<const aotpack_weight_delta*> match_deltas(const std::vector<WeightRecord>& weights,
                                                      const aotpack_weight_delta* const* deltas, size_t count,
                                                      Problems* problems) {
  std::vector<const aotpack_weight_delta*> matched(weights.size());
  if (count == 0) return matched;
  if (deltas == nullptr) fail(AOTPACK_INVALID_ARGUMENT, "deltas is NULL");
  std::unordered_map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < weights.size(); ++i) by_name.emplace(weights[i].name, i);
  std::unordered_map<uint32_t, size_t> by_constant;
  for (size_t i = 0; i < count; ++i) {
    if (deltas[i] == nullptr) fail(AOTPACK_INVALID_ARGUMENT, "delta %zu is NULL", i);
    const aotpack_weight_delta& delta = *deltas[i];
    if (delta.struct_size < offsetof(aotpack_weight_delta, scale) + sizeof delta.scale) {
      fail(AOTPACK_INVALID_ARGUMENT, "aotpack_weight_delta.struct_size is not set");
    }
    if (delta.name == nullptr) {
      problems->add(format("the name of delta %zu is NULL", i));
      continue;
    }
    const auto found = by_name.find(delta.name);
    if (found == by_name.end()) {
      problems->add("there is no '" + std::string(delta.name) + "'");
      continue;
    }
    const WeightRecord& weight = weights[found->second];
    std::string problem = problem_of(weight, delta);
    if (!problem.empty()) {
      problems->add(std::move(problem));
    } else if (matched[found->second] != nullptr) {
      problems->add("'" + weight.name + "' has two deltas");
    } else if (weight.constant != WeightRecord::kNone && !by_constant.emplace(weight.constant, found->second).second) {
      problems->add("'" + weights[by_constant[weight.constant]].name + "' and '" + weight.name +
                    "' are one tensor of the model, and both have a delta");
    }
    matched[found->second] = &delta;
  }
  return matched;
}

void add_delta(const WeightRecord& weight, const aotpack_weight_delta& delta, void* elements) {
  const std::vector<double> down = elements_of(*delta.down);
  const std::vector<double> up = elements_of(*delta.up);
  const auto rows = static_cast<size_t>(weight.shape[0]);
  const auto rank = static_cast<size_t>(delta.down->shape[0]);
  size_t columns = 1;
  for (size_t i = 1; i < weight.shape.size(); ++i) columns *= static_cast<size_t>(weight.shape[i]);
  std::vector<double> sum(columns);
  std::vector<double> row(columns);
  for (size_t i = 0; i < rows; ++i) {
    std::fill(sum.begin(), sum.end(), 0.0);
    for (size_t k = 0; k < rank; ++k) {
      const double factor = up[i * rank + k];
      const double* from = down.data() + k * columns;
      for (size_t j = 0; j < columns; ++j) sum[j] += factor * from[j];
    }
    char* at = static_cast<char*>(elements) + i * columns * weight.dtype->size;
    to_doubles(*weight.dtype, at, columns, row.data());
    for (size_t j = 0; j < columns; ++j) row[j] += delta.scale * sum[j];
    from_doubles(*weight.dtype, row.data(), columns, at);
  }
}

}  // namespace aotpack::runtime
