#include "array_type.h"

#include <cstring>
#include <string_view>

#include "object.h"

namespace aotpack::python {
namespace {

// A process meets few types of arrays; when it meets more, the oldest is learnt anew.
constexpr size_t kCacheSize = 8;
ArrayType g_cache[kCacheSize];
size_t g_next = 0;

// The top-level package that defines the type or a base of it: subclasses of torch.Tensor are torch's too.
Framework framework_of(PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    Ref module = Ref::take(PyObject_GetAttrString(PyTuple_GET_ITEM(mro, i), "__module__"));
    const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : nullptr;
    PyErr_Clear();
    if (!text) continue;
    std::string_view root(text, std::strcspn(text, "."));
    if (root == "numpy") return Framework::kNumpy;
    if (root == "torch") return Framework::kTorch;
    if (root == "jax" || root == "jaxlib") return Framework::kJax;
  }
  return Framework::kNone;
}

const ExchangeApi* exchange_of(PyTypeObject* type) {
  Ref capsule = Ref::take(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), "__dlpack_c_exchange_api__"));
  const ExchangeApi* api = nullptr;
  if (capsule && PyCapsule_IsValid(capsule.get(), "dlpack_exchange_api")) {
    api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
  }
  PyErr_Clear();
  while (api && api->version.major != AOTPACK_DLPACK_MAJOR) api = api->previous;
  return api;
}

}  // namespace

const ArrayType& array_type(PyTypeObject* type) {
  for (const ArrayType& known : g_cache) {
    if (known.type == type) return known;
  }
  ArrayType& slot = g_cache[g_next++ % kCacheSize];
  Py_INCREF(type);  // a type that died could come back at the same address as another
  Py_XDECREF(slot.type);
  slot.type = type;
  slot.kind = {framework_of(type), exchange_of(type)};
  slot.has_buffer = type->tp_as_buffer && type->tp_as_buffer->bf_getbuffer;
  slot.has_dlpack = PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "__dlpack__");
  return slot;
}

}  // namespace aotpack::python
