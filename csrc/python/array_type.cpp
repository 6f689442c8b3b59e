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
  const Ref mro = Ref::share(type->tp_mro);
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro.get()); ++i) {
    Ref module = Ref::take(PyObject_GetAttrString(PyTuple_GET_ITEM(mro.get(), i), "__module__"));
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

ArrayType array_type(PyTypeObject* type) {
  for (const ArrayType& known : g_cache) {
    if (known.type == type) return known;
  }
  // Learnt before it gets its place: asking may run code of the type's, and other threads, which come here too.
  ArrayType learnt;
  learnt.type = type;
  learnt.kind = {framework_of(type), exchange_of(type)};
  learnt.has_buffer = type->tp_as_buffer && type->tp_as_buffer->bf_getbuffer;
  learnt.has_dlpack = PyObject_HasAttrString(reinterpret_cast<PyObject*>(type), "__dlpack__");
  Py_INCREF(type);  // a type that died could come back at the same address as another
  ArrayType& slot = g_cache[g_next++ % kCacheSize];
  PyTypeObject* const before = slot.type;
  slot = learnt;
  Py_XDECREF(before);
  return learnt;
}

}  // namespace aotpack::python
