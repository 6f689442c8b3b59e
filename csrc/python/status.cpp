#include "status.h"

namespace aotpack::python {
namespace {

struct ErrorClass {
  const char* name;
  const char* hint;
};

ErrorClass error_class(aotpack_code code) {
  switch (code) {
    case AOTPACK_INVALID_ARGUMENT:
      return {"InputError", nullptr};
    case AOTPACK_NOT_FOUND:
      return {"ArchiveNotFoundError", nullptr};
    case AOTPACK_IO_ERROR:
      return {"ArchiveIOError", nullptr};
    case AOTPACK_FOREIGN_ARCHIVE:
      return {"ForeignArchiveError", "`aotpack build` creates archives"};
    case AOTPACK_TRUNCATED_ARCHIVE:
      return {"TruncatedArchiveError", "the copy or download was cut short; fetch the archive again"};
    case AOTPACK_MALFORMED_ARCHIVE:
      return {"MalformedArchiveError", nullptr};
    case AOTPACK_TAMPERED_ARCHIVE:
      return {"TamperedArchiveError", "the file changed after it was built; fetch or build it again"};
    case AOTPACK_UNSUPPORTED_VERSION:
      return {"UnsupportedVersionError", "update aotpack, or build the archive again with this version"};
    case AOTPACK_UNSUPPORTED_TARGET:
      return {"UnsupportedTargetError", "build the archive for this machine too: aotpack build --target …"};
    case AOTPACK_MISSING_IMPORT:
      return {"MissingImportError", "update aotpack, or build the archive again with this version"};
    case AOTPACK_OUT_OF_MEMORY:
      return {"OutOfMemoryError", nullptr};
    case AOTPACK_EXECUTION_FAILED:
      return {"ExecutionError", nullptr};
    case AOTPACK_DEVICE_FAILED:
      return {"DeviceError", nullptr};
    case AOTPACK_MISSING_WEIGHTS:
      return {"MissingWeightsError", nullptr};
    case AOTPACK_CANCELLED:
      return {"CallCancelledError", nullptr};
    default:
      return {"AotpackError", nullptr};
  }
}

}  // namespace

void set_error(const char* name, const std::string& message, const char* hint) {
  // Imported when first needed: errors are not on the path of a call that works.
  PyObject* module = PyImport_ImportModule("aotpack.errors");
  PyObject* cls = module ? PyObject_GetAttrString(module, name) : nullptr;
  PyObject* text =
      cls ? PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace") : nullptr;
  PyObject* args = text ? PyTuple_Pack(1, text) : nullptr;
  PyObject* kwargs = args ? (hint ? Py_BuildValue("{s:s}", "hint", hint) : PyDict_New()) : nullptr;
  PyObject* error = kwargs ? PyObject_Call(cls, args, kwargs) : nullptr;
  if (error) PyErr_SetObject(cls, error);
  Py_XDECREF(error);
  Py_XDECREF(kwargs);
  Py_XDECREF(args);
  Py_XDECREF(text);
  Py_XDECREF(cls);
  Py_XDECREF(module);
}

bool check(aotpack_status* status) {
  if (status == nullptr) return true;
  ErrorClass cls = error_class(aotpack_status_code(status));
  set_error(cls.name, aotpack_status_message(status), cls.hint);
  aotpack_status_release(status);
  return false;
}

bool check_weights(aotpack_status* status, const char* hint) {
  if (aotpack_status_code(status) != AOTPACK_INVALID_ARGUMENT) return check(status);
  set_error("WeightsError", aotpack_status_message(status), hint);
  aotpack_status_release(status);
  return false;
}

}  // namespace aotpack::python
