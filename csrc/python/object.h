// A reference to a Python object, and the interpreter's table of imported modules.
#pragma once

#include <Python.h>

#include <utility>

namespace aotpack::python {

// Owns one reference, or none. Everything about it needs the GIL.
class Ref {
 public:
  Ref() = default;
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  // Takes over a reference that the caller has.
  static Ref take(PyObject* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  static Ref share(PyObject* object) {
    Py_XINCREF(object);
    return take(object);
  }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// The module of that name if it has been imported, borrowed; else null, without an exception.
inline PyObject* imported_module(const char* name) {
  PyObject* modules = PyImport_GetModuleDict();
  return modules ? PyDict_GetItemString(modules, name) : nullptr;
}

}  // namespace aotpack::python
