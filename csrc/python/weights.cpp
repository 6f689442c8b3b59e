#include "weights.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "named_arrays.h"
#include "object.h"
#include "status.h"
#include "tensor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace aotpack::python {
namespace {

const char* const kUpdateHint = "nothing was changed; Model.weights lists the tensors of an update";
const char* const kFrozenHint = "build the archive again with --updatable to replace its weights";
const char* const kStateHint = "nothing was changed; Context.state() lists the tensors of a state";

void require(bool ok) {
  if (!ok) throw nb::python_error();
}

// Low-rank changes of weights, from tuples (name, down, up, scale, whether the product is transposed); borrowed for the
// time of a call.
class GivenDeltas {
 public:
  GivenDeltas(nb::list items, bool raw) : factors_(new Factor[2 * items.size()]), names_(items.size()) {
    for (size_t i = 0; i < items.size(); ++i) {
      const auto item = nb::cast<nb::tuple>(items[i]);
      names_[i] = nb::cast<std::string>(item[0]);
      const bool transposed = nb::cast<bool>(item[4]);
      const DLTensor* down = factors_[2 * i].import(item[1].ptr(), names_[i], "lora_A", raw, transposed);
      const DLTensor* up = factors_[2 * i + 1].import(item[2].ptr(), names_[i], "lora_B", raw, transposed);
      // (up down)^T is down^T up^T.
      if (transposed) std::swap(down, up);
      deltas_.push_back({sizeof(aotpack_weight_delta), names_[i].c_str(), down, up, nb::cast<double>(item[3])});
    }
    for (const aotpack_weight_delta& delta : deltas_) pointers_.push_back(&delta);
  }

  const aotpack_weight_delta* const* data() const { return pointers_.data(); }
  size_t size() const { return deltas_.size(); }

 private:
  class Factor {
   public:
    const DLTensor* import(PyObject* array, const std::string& weight, const char* name, bool raw, bool transposed) {
      const std::string what = std::string(name) + " of " + weight;
      const Site site{"weight", what.c_str(), "WeightsError"};
      const DLDataType bfloat16{kDLBfloat, 16, 1};
      require(raw ? argument_.import_raw(array, site) : argument_.import(array, site, bfloat16, /*writable=*/false));
      view_ = argument_.tensor();
      if (!transposed || view_.ndim != 2) return &view_;
      for (int i = 0; i < 2; ++i) shape_[i] = view_.shape[1 - i];
      strides_[0] = view_.strides != nullptr ? view_.strides[1] : 1;
      strides_[1] = view_.strides != nullptr ? view_.strides[0] : view_.shape[1];
      view_.shape = shape_;
      view_.strides = strides_;
      return &view_;
    }

   private:
    Argument argument_;
    DLTensor view_{};
    int64_t shape_[2];
    int64_t strides_[2];
  };

  std::unique_ptr<Factor[]> factors_;
  std::vector<std::string> names_;
  std::vector<aotpack_weight_delta> deltas_;
  std::vector<const aotpack_weight_delta*> pointers_;
};

const char* hint_of(const aotpack_model* model) {
  return aotpack_model_is_updatable(model) ? kUpdateHint : kFrozenHint;
}

void update_weights(const Runner& self, const std::vector<std::string>& names, nb::list arrays, nb::list deltas,
                    bool raw, uint64_t flags, int32_t num_threads) {
  aotpack_model* model = self.loaded()->model();
  // Tensors on the device are read in the order of its legacy default stream.
  const Given given(model, "weight", aotpack_model_weight, aotpack_model_weight_count(model), names, arrays, raw,
                    aotpack_model_device(model), legacy_stream());
  const GivenDeltas changes(deltas, raw);
  aotpack_update_options options{};
  options.struct_size = sizeof options;
  options.num_threads = num_threads;
  options.flags = flags;
  options.deltas = changes.data();
  options.delta_count = changes.size();
  aotpack_status* status;
  Py_BEGIN_ALLOW_THREADS;
  status = aotpack_model_update_weights(model, given.names(), given.tensors(), given.size(), &options);
  Py_END_ALLOW_THREADS;
  require(check_weights(status, hint_of(model)));
}

void reset_weights(const Runner& self) {
  aotpack_model* model = self.loaded()->model();
  aotpack_status* status;
  Py_BEGIN_ALLOW_THREADS;
  status = aotpack_model_reset_weights(model);
  Py_END_ALLOW_THREADS;
  require(check_weights(status, hint_of(model)));
}

using StateGetter = aotpack_status* (*)(aotpack_context*, size_t, DLManagedTensorVersioned**);

// Copies of the state, or tensors that share its memory.
template <StateGetter Get>
nb::dict get_state(const Runner& self) {
  aotpack_model* model = self.loaded()->model();
  std::vector<DLManagedTensorVersioned*> tensors(aotpack_model_state_count(model));
  // All under one lock: no call comes between.
  const bool ok = self.with_context([&](aotpack_context* context) -> aotpack_status* {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (aotpack_status* status = Get(context, i, &tensors[i])) return status;
    }
    return nullptr;
  });
  nb::dict result;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) continue;
    nb::object tensor = nb::steal(new_tensor_object(tensors[i]));
    result[aotpack_model_state(model, i)->name] = tensor;
  }
  require(ok);
  return result;
}

void load_state(const Runner& self, const std::vector<std::string>& names, nb::list arrays) {
  aotpack_model* model = self.loaded()->model();
  const Given given(model, "state", aotpack_model_state, aotpack_model_state_count(model), names, arrays, false,
                    aotpack_model_device(model),
                    self.context() ? aotpack_context_stream(self.context()->get()) : nullptr);
  aotpack_status* refused = nullptr;
  require(self.with_context([&](aotpack_context* context) -> aotpack_status* {
    refused = aotpack_context_load_state(context, given.names(), given.tensors(), given.size());
    return nullptr;
  }));
  require(check_weights(refused, kStateHint));
}

// The files of a state are files of weights to Python; a `hint` belongs to a state that was rejected.
bool check_state_file(aotpack_status* status, const char* hint) {
  if (aotpack_status_code(status) != AOTPACK_NOT_FOUND) return check_weights(status, hint);
  set_error("WeightsNotFoundError", aotpack_status_message(status), nullptr);
  aotpack_status_release(status);
  return false;
}

void save_state_file(const Runner& self, const std::string& path) {
  aotpack_status* refused = nullptr;
  require(self.with_context([&](aotpack_context* context) -> aotpack_status* {
    refused = aotpack_context_save_state_file(context, path.c_str());
    return nullptr;
  }));
  require(check_state_file(refused, nullptr));
}

void load_state_file(const Runner& self, const std::string& path, uint64_t flags) {
  aotpack_status* refused = nullptr;
  require(self.with_context([&](aotpack_context* context) -> aotpack_status* {
    refused = aotpack_context_load_state_file(context, path.c_str(), flags);
    return nullptr;
  }));
  require(check_state_file(refused, kStateHint));
}

void set_atomic(const Runner& self, bool enabled) {
  require(self.with_context([&](aotpack_context* context) { return aotpack_context_set_atomic(context, enabled); }));
}

void set_check_finite(const Runner& self, bool enabled) {
  require(
      self.with_context([&](aotpack_context* context) { return aotpack_context_set_check_finite(context, enabled); }));
}

void reset(const Runner& self) {
  require(self.with_context([](aotpack_context* context) { return aotpack_context_reset(context); }));
}

}  // namespace

void bind_weights(nb::class_<Runner>& runner) {
  runner.def("_update_weights", update_weights, "names"_a, "arrays"_a, "deltas"_a, "raw"_a, "flags"_a, "num_threads"_a)
      .def("_reset_weights", reset_weights)
      .def_prop_ro("_weight_generation",
                   [](const Runner& self) { return aotpack_model_weight_generation(self.loaded()->model()); })
      .def("_get_state", get_state<aotpack_context_get_state>)
      .def("_share_state", get_state<aotpack_context_share_state>)
      .def_prop_ro("_state_generation",
                   [](const Runner& self) {
                     uint64_t generation = 0;
                     require(self.with_context([&](aotpack_context* context) -> aotpack_status* {
                       generation = aotpack_context_state_generation(context);
                       return nullptr;
                     }));
                     return generation;
                   })
      .def("_load_state", load_state, "names"_a, "arrays"_a)
      .def("_save_state_file", save_state_file, "path"_a)
      .def("_load_state_file", load_state_file, "path"_a, "flags"_a)
      .def("_set_atomic", set_atomic, "enabled"_a)
      .def("_set_check_finite", set_check_finite, "enabled"_a)
      .def("_reset", reset);
}

}  // namespace aotpack::python
