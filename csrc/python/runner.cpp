#include "runner.h"

#include <string>

#include "call_tensors.h"
#include "object.h"
#include "status.h"
#include "tensor.h"

namespace aotpack::python {
namespace {

// A list or tuple of results, all outputs in order.
PyObject* sequence(Outputs* outputs, const ArrayKind& kind, bool tuple) {
  const auto count = static_cast<Py_ssize_t>(outputs->count());
  Ref result = Ref::take(tuple ? PyTuple_New(count) : PyList_New(count));
  for (Py_ssize_t i = 0; result && i < count; ++i) {
    PyObject* item = outputs->wrap(static_cast<size_t>(i), kind);
    if (!item) return nullptr;
    if (tuple) {
      PyTuple_SET_ITEM(result.get(), i, item);
    } else {
      PyList_SET_ITEM(result.get(), i, item);
    }
  }
  return result.release();
}

bool is_in_order(const std::vector<int>& indices, size_t count) {
  if (indices.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (indices[i] != static_cast<int>(i)) return false;
  }
  return true;
}

PyObject* dict(Outputs* outputs, const ArrayKind& kind, const CallPlan& plan) {
  Ref result = Ref::take(PyDict_New());
  for (size_t i = 0; result && i < plan.keys.size(); ++i) {
    Ref item = Ref::take(outputs->wrap(i, kind));
    if (!item || PyDict_SetItem(result.get(), plan.keys[i], item.get()) < 0) return nullptr;
  }
  return result.release();
}

// Which argument is input i: fills `objects`. References of our own: reading one argument runs code of the caller's,
// which may change the dict of the others. False when the call is not of this form.
bool match(const CallPlan& plan, PyObject* args, PyObject* kwargs, Ref* objects, size_t count) {
  const auto given = static_cast<size_t>(PyTuple_GET_SIZE(args));
  const size_t named = kwargs ? static_cast<size_t>(PyDict_GET_SIZE(kwargs)) : 0;
  if (given > plan.positional.size() || given + named != count) return false;
  for (size_t p = 0; p < given; ++p) {
    objects[plan.positional[p]] = Ref::share(PyTuple_GET_ITEM(args, static_cast<Py_ssize_t>(p)));
  }
  if (named == 0) return true;
  for (size_t i = 0; i < count; ++i) {
    if (objects[i]) continue;
    // As many as are missing were named, so finding each missing one leaves none over.
    objects[i] = Ref::share(plan.names[i] ? PyDict_GetItemWithError(kwargs, plan.names[i]) : nullptr);
    if (!objects[i]) return false;
  }
  return true;
}

// How the entry's results can be made without Python's help.
bool is_plain(const CallPlan& plan, size_t num_inputs, size_t num_outputs) {
  return plan.plain_arguments && plan.names.size() == num_inputs && plan.result != CallPlan::Result::kStructured &&
         is_in_order(plan.outputs, num_outputs);
}

}  // namespace

bool Lease::acquire() {
  if (device_.device_type == kDLCPU) return true;
  if (own_) {
    context_ = own_->get();
    return true;
  }
  aotpack_status* status;
  Py_BEGIN_ALLOW_THREADS;
  status = runner_.loaded()->take(&context_);
  Py_END_ALLOW_THREADS;
  return check(status);
}

aotpack_status* Lease::set_stream(aotpack_context* context) const {
  if (!follows_ || aotpack_context_stream(context) == followed_) return nullptr;
  return aotpack_context_set_stream(context, followed_);
}

PyObject* Runner::call(PyObject* self, PyObject* args, PyObject* kwargs) const {
  const CallPlan& plan = loaded_->plan(entry_);
  aotpack_model* model = loaded_->model();
  const size_t num_inputs = aotpack_model_input_count(model, entry_);
  const size_t num_outputs = aotpack_model_output_count(model, entry_);
  Small<Ref> objects(num_inputs);
  if (!is_plain(plan, num_inputs, num_outputs) || !match(plan, args, kwargs, objects.data(), num_inputs)) {
    // Nested structure, or a call that does not fit, which Python explains best.
    if (PyErr_Occurred()) return nullptr;
    Ref method = Ref::take(PyObject_GetAttrString(self, "_call_structured"));
    Ref keywords = Ref::take(kwargs ? Py_NewRef(kwargs) : PyDict_New());
    if (!method || !keywords) return nullptr;
    return PyObject_CallFunctionObjArgs(method.get(), args, keywords.get(), nullptr);
  }

  Lease lease(*this);
  if (!lease.acquire()) return nullptr;
  Inputs inputs(num_inputs, lease.device(), lease.stream());
  for (size_t i = 0; i < num_inputs; ++i) {
    if (!inputs.import(i, objects[i].get(), *aotpack_model_input(model, entry_, i))) return nullptr;
  }
  if (!inputs.follow(&lease)) return nullptr;
  Outputs outputs(model, entry_, num_outputs);
  if (!lease.run([&](aotpack_context* context) {
        return aotpack_context_run(context, entry_, inputs.tensors(), num_inputs, outputs.data(), num_outputs);
      })) {
    return nullptr;
  }
  switch (plan.result) {
    case CallPlan::Result::kTensor:
      return outputs.wrap(0, inputs.kind());
    case CallPlan::Result::kDict:
      return dict(&outputs, inputs.kind(), plan);
    default:
      return sequence(&outputs, inputs.kind(), plan.result == CallPlan::Result::kTuple);
  }
}

PyObject* Runner::run(PyObject* tensors, PyObject* out) const {
  aotpack_model* model = loaded_->model();
  const size_t num_inputs = aotpack_model_input_count(model, entry_);
  const size_t num_outputs = aotpack_model_output_count(model, entry_);
  // A tuple of our own: reading an item runs code of the caller's, which may change a list.
  auto take = [](PyObject* sequence, const char* message) {
    Ref fast = Ref::take(PySequence_Fast(sequence, message));
    return Ref::take(fast ? PySequence_Tuple(fast.get()) : nullptr);
  };
  auto fits = [&](PyObject* tuple, size_t count, const char* what) {
    const auto given = static_cast<size_t>(PyTuple_GET_SIZE(tuple));
    if (given == count) return true;
    set_error("InputError", "the entry '" + std::string(aotpack_model_entry_name(model, entry_)) + "' has " +
                                std::to_string(count) + " " + what + (count == 1 ? "" : "s") + ", got " +
                                std::to_string(given));
    return false;
  };

  Ref given = take(tensors, "the inputs must be a sequence of arrays");
  if (!given || !fits(given.get(), num_inputs, "input")) return nullptr;
  Lease lease(*this);
  if (!lease.acquire()) return nullptr;
  Inputs inputs(num_inputs, lease.device(), lease.stream());
  for (size_t i = 0; i < num_inputs; ++i) {
    PyObject* object = PyTuple_GET_ITEM(given.get(), static_cast<Py_ssize_t>(i));
    if (!inputs.import(i, object, *aotpack_model_input(model, entry_, i))) return nullptr;
  }

  if (!inputs.follow(&lease)) return nullptr;
  if (out == Py_None) {
    Outputs outputs(model, entry_, num_outputs);
    const bool ok = lease.run([&](aotpack_context* context) {
      return aotpack_context_run(context, entry_, inputs.tensors(), num_inputs, outputs.data(), num_outputs);
    });
    return ok ? sequence(&outputs, inputs.kind(), /*tuple=*/false) : nullptr;
  }

  Ref buffers = take(out, "out must be a sequence of arrays");
  if (!buffers || !fits(buffers.get(), num_outputs, "output")) return nullptr;
  Inputs results(num_outputs, lease.device(), lease.stream());
  for (size_t i = 0; i < num_outputs; ++i) {
    PyObject* object = PyTuple_GET_ITEM(buffers.get(), static_cast<Py_ssize_t>(i));
    if (!results.import_out(i, object, *aotpack_model_output(model, entry_, i))) return nullptr;
  }
  if (!inputs.kind().is_on_device && !results.follow(&lease)) return nullptr;
  const bool ok = lease.run([&](aotpack_context* context) {
    return aotpack_context_run_into(context, entry_, inputs.tensors(), num_inputs, results.tensors(), num_outputs);
  });
  Ref list = Ref::take(ok ? PySequence_List(buffers.get()) : nullptr);
  for (size_t i = 0; list && i < num_outputs; ++i) {
    const auto at = static_cast<Py_ssize_t>(i);
    if (PyList_GET_ITEM(list.get(), at) != Py_None) continue;
    PyObject* number = number_object(results.tensor(i), aotpack_model_output(model, entry_, i)->number);
    if (!number || PyList_SetItem(list.get(), at, number) < 0) return nullptr;
  }
  return list.release();
}

PyObject* Runner::variant() const {
  const char* name = nullptr;
  if (context_ && !with_context([&](aotpack_context* context) -> aotpack_status* {
        name = aotpack_context_variant(context, entry_);
        return nullptr;
      })) {
    return nullptr;
  }
  return name ? PyUnicode_FromString(name) : Py_NewRef(Py_None);
}

PyObject* Runner::to_device(PyObject* array) const {
  Lease lease(*this);
  if (!lease.acquire()) return nullptr;
  Inputs inputs(1, lease.device(), lease.stream());
  aotpack_value_info info{};
  info.name = "array";
  info.device = lease.device();
  if (!inputs.import(0, array, info) || !inputs.follow(&lease)) return nullptr;
  DLManagedTensorVersioned* made = nullptr;
  const bool ok =
      lease.run([&](aotpack_context* context) { return aotpack_context_to_device(context, &inputs.tensor(0), &made); });
  return ok ? new_tensor_object(made) : nullptr;
}

int32_t Runner::num_threads() const {
  int32_t result = 0;
  const bool ok = with_context([&](aotpack_context* context) -> aotpack_status* {
    result = aotpack_context_num_threads(context);
    return nullptr;
  });
  return ok ? result : -1;
}

void Runner::set_seed(uint64_t seed) const {
  with_context([&](aotpack_context* context) -> aotpack_status* {
    aotpack_context_set_seed(context, seed);
    return nullptr;
  });
}

}  // namespace aotpack::python
