#include "call/given.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "aotpack/module_abi.h"
#include "base/bools.h"
#include "base/dltensor.h"
#include "base/status.h"
#include "base/strided.h"

namespace aotpack::runtime {

std::string shape_text(const int64_t* sizes, size_t rank) {
  std::string text = "[";
  for (size_t i = 0; i < rank; ++i) text += (i > 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

namespace {

// Why a tensor is not the wanted one, or "".
std::string problem_of(const WantedTensor& wanted, const DLTensor* given) {
  const std::string start = "'" + *wanted.name + "'";
  if (given == nullptr) return start + " is NULL";
  if (!is_on_host(given->device) && !same_device(given->device, wanted.device)) {
    const std::string places = is_on_host(wanted.device) ? "the CPU" : "the CPU or " + device_name(wanted.device);
    return start + " must be on " + places + ", got " + device_name(given->device);
  }
  const std::vector<int64_t>& shape = *wanted.shape;
  const auto rank = static_cast<size_t>(std::max(given->ndim, 0));
  if (given->ndim < 0 || (rank > 0 && given->shape == nullptr)) return start + " has no shape";
  if (!same_dtype(given->dtype, wanted.dtype->dlpack) ||
      !std::equal(shape.begin(), shape.end(), given->shape, given->shape + rank)) {
    return start + ": expected " + wanted.dtype->name + " " + shape_text(shape.data(), shape.size()) + ", got " +
           dtype_name(given->dtype) + " " + shape_text(given->shape, rank);
  }
  int64_t compact[AOTPACK_MAX_RANK];
  const int64_t* strides = nullptr;
  if (!strides_of(*given, compact, &strides)) return start + " is larger than the address space";
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (!empty && data_of(*given) == nullptr) return start + " has no data";
  return "";
}

}  // namespace

void Problems::add(std::string problem) {
  if (++count_ <= kShown) shown_.push_back(std::move(problem));
}

void Problems::throw_if_any(const char* what) const {
  if (count_ == 0) return;
  std::string message = what;
  for (size_t i = 0; i < shown_.size(); ++i) message += (i == 0 ? ": " : "; ") + shown_[i];
  if (count_ > kShown) message += format("; and %zu more", count_ - kShown);
  throw Error(AOTPACK_INVALID_ARGUMENT, message);
}

GivenTensors match_given(const std::vector<WantedTensor>& wanted, const char* const* names,
                         const DLTensor* const* tensors, size_t count, Problems* problems) {
  std::unordered_map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < wanted.size(); ++i) by_name.emplace(*wanted[i].name, i);
  if (count > 0 && (names == nullptr || tensors == nullptr)) {
    fail(AOTPACK_INVALID_ARGUMENT, "%s is NULL", names == nullptr ? "names" : "tensors");
  }
  GivenTensors given{std::vector<const DLTensor*>(wanted.size()), std::vector<bool>(wanted.size())};
  for (size_t i = 0; i < count; ++i) {
    if (names[i] == nullptr) {
      problems->add(format("name %zu is NULL", i));
      continue;
    }
    const auto found = by_name.find(names[i]);
    if (found == by_name.end()) {
      problems->add("there is no '" + std::string(names[i]) + "'");
      continue;
    }
    const size_t index = found->second;
    std::string problem =
        given.named[index] ? "'" + std::string(names[i]) + "' is given twice" : problem_of(wanted[index], tensors[i]);
    if (problem.empty()) {
      given.tensors[index] = tensors[i];
    } else {
      problems->add(std::move(problem));
    }
    given.named[index] = true;
  }
  return given;
}

void copy_given(const DLTensor& given, const DType& dtype, void* destination, const int64_t* strides,
                size_t bytes) noexcept {
  int64_t compact[AOTPACK_MAX_RANK];
  const int64_t* given_strides = nullptr;
  if (!strides_of(given, compact, &given_strides)) return;  // match_given has seen to it
  strided_copy(destination, strides, data_of(given), given_strides, given.shape, given.ndim, dtype.size);
  if (dtype.is_bool()) make_bools(destination, bytes);
}

bool same_bytes(const DLTensor& a, const DLTensor& b, size_t item) noexcept {
  int64_t compact_a[AOTPACK_MAX_RANK];
  int64_t compact_b[AOTPACK_MAX_RANK];
  const int64_t* strides_a = nullptr;
  const int64_t* strides_b = nullptr;
  if (!strides_of(a, compact_a, &strides_a) || !strides_of(b, compact_b, &strides_b)) return false;
  return strided_equal(data_of(a), strides_a, data_of(b), strides_b, a.shape, a.ndim, item);
}

}  // namespace aotpack::runtime
