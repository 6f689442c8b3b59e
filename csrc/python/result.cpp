#include "result.h"

#include "numpy_bridge.h"
#include "object.h"
#include "tensor.h"

namespace aotpack::python {
namespace {

// module.from_dlpack(Tensor), for a module that the caller has imported already.
PyObject* from_dlpack(const char* module_name, DLManagedTensorVersioned* tensor) {
  Ref object = Ref::take(new_tensor_object(tensor));
  if (!object) return nullptr;
  PyObject* module = imported_module(module_name);
  if (!module) return object.release();
  Ref function = Ref::take(PyObject_GetAttrString(module, "from_dlpack"));
  return function ? PyObject_CallOneArg(function.get(), object.get()) : nullptr;
}

}  // namespace

PyObject* wrap_result(DLManagedTensorVersioned* tensor, const ArrayKind& kind) {
  const bool is_on_device = tensor->dl_tensor.device.device_type != kDLCPU;
  if (is_on_device && !kind.is_on_device) return new_tensor_object(tensor);
  if (kind.exchange && kind.exchange->to_object) {
    void* object = nullptr;
    return kind.exchange->to_object(tensor, &object) == 0 ? static_cast<PyObject*>(object) : nullptr;
  }
  switch (kind.framework) {
    case Framework::kNumpy:
      if (numpy_ready()) return numpy_from_tensor(tensor);
      break;
    case Framework::kTorch:
      return from_dlpack("torch", tensor);
    case Framework::kJax:
      return from_dlpack("jax.dlpack", tensor);
    case Framework::kNone:
      break;
  }
  return new_tensor_object(tensor);
}

}  // namespace aotpack::python
