// Arrays by name: weights, or a state.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "aotpack/aotpack.h"
#include "argument.h"

namespace aotpack::python {

using Info = const aotpack_weight_info* (*)(const aotpack_model*, size_t);

// Arrays by name, as the C interface takes them; borrowed for the time of a call.
class Given {
 public:
  // `raw`: the arrays are tuples, see Argument::import_raw.
  Given(const aotpack_model* model, const char* role, Info info, size_t info_count,
        const std::vector<std::string>& names, nanobind::list arrays, bool raw, DLDevice device = {kDLCPU, 0},
        void* stream = nullptr)
      : arguments_(new Argument[names.size()]), arrays_(arrays) {
    if (arrays_.size() != names.size()) throw nanobind::value_error("names and arrays differ in number");
    // uint16 passes for bfloat16, and uint8 for float8, where that is wanted.
    std::unordered_map<std::string_view, DLDataType> dtypes;
    for (size_t i = 0; i < info_count; ++i) dtypes.emplace(info(model, i)->name, info(model, i)->dtype);
    for (size_t i = 0; i < names.size(); ++i) {
      const Site site{role, names[i].c_str(), "WeightsError", device, stream, /*is_ordered=*/true};
      const auto expected = dtypes.find(names[i]);
      PyObject* array = PyTuple_GET_ITEM(arrays_.ptr(), static_cast<Py_ssize_t>(i));
      const bool ok =
          raw ? arguments_[i].import_raw(array, site)
              : arguments_[i].import(array, site, expected != dtypes.end() ? expected->second : DLDataType{},
                                     /*writable=*/false);
      if (!ok) throw nanobind::python_error();
      names_.push_back(names[i].c_str());
      tensors_.push_back(&arguments_[i].tensor());
    }
  }

  const char* const* names() const { return names_.data(); }
  const DLTensor* const* tensors() const { return tensors_.data(); }
  size_t size() const { return names_.size(); }

 private:
  std::unique_ptr<Argument[]> arguments_;
  nanobind::tuple arrays_;  // what the arguments borrow from; reading one may run code that changes the list
  std::vector<const char*> names_;
  std::vector<const DLTensor*> tensors_;
};

}  // namespace aotpack::python
