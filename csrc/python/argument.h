// One array that a caller passes, as a DLTensor for the time of a call.
#pragma once

#include <Python.h>

#include "aotpack/aotpack.h"
#include "exchange.h"
#include "number.h"

namespace aotpack::python {

// The most dims that a model's tensors may have.
inline constexpr int kMaxRank = 16;

// Which library's arrays go in, and so come out.
enum class Framework : uint8_t { kNone, kNumpy, kTorch, kJax };

struct ArrayKind {
  Framework framework = Framework::kNone;
  const ExchangeApi* exchange = nullptr;  // may be null
  bool is_on_device = false;              // so is what comes out
};

// What an error says about the argument.
struct Site {
  const char* role;  // "argument" or "out"
  const char* name;
  const char* error = "InputError";  // its class in aotpack.errors
  DLDevice device = {kDLCPU, 0};     // where the array may be besides the CPU
  void* stream = nullptr;            // of that device: reads the array
  // The array's library has to order its work with `stream`. Otherwise the call may follow the stream of the library.
  bool is_ordered = false;
};

// The legacy default stream, as the CUDA driver and DLPack call it where NULL means none.
inline void* legacy_stream() { return reinterpret_cast<void*>(uintptr_t{1}); }

// Borrows the memory of any array: numpy's, torch's, jax's, our own, what speaks DLPack or the buffer protocol. Needs
// the GIL.
class Argument {
 public:
  Argument() = default;
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() {
    if (held_ != Held::kNothing) release();
  }

  // False, with a Python exception set, when `object` is no array in CPU memory or on the site's device, or is
  // read-only and must be written to. uint16 is taken for bfloat16, and uint8 for float8, when that is `expected`: see
  // stands_for().
  bool import(PyObject* object, const Site& site, DLDataType expected, bool writable);

  // The same for a number of the signature: a Python number, numpy scalar, or array of rank 0.
  bool import_number(PyObject* object, const Site& site, aotpack_number kind);

  // Makes room for a number that comes out of a call.
  void hold_number(aotpack_number kind);

  // The same from a tuple (dtype's name, sizes, buffer of the row-major bytes).
  bool import_raw(PyObject* tuple, const Site& site);

  const DLTensor& tensor() const { return tensor_; }
  const ArrayKind& kind() const { return kind_; }
  bool is_on_device() const { return tensor_.device.device_type == kDLCUDA; }

 private:
  enum class Held : uint8_t { kNothing, kBuffer, kCapsule };

  bool import_numpy(PyObject* object, const Site& site, bool writable);
  bool import_exchange(PyObject* object, const Site& site);
  bool import_buffer(PyObject* object, const Site& site, bool writable);
  bool read_capsule(PyObject* capsule, const Site& site, bool writable);
  bool import_dlpack(PyObject* object, const Site& site, bool writable);
  bool is_array(PyObject* object) const;
  void own_sizes();
  void release();

  DLTensor tensor_{};
  ArrayKind kind_;
  Held held_ = Held::kNothing;
  PyObject* capsule_;
  Py_buffer buffer_;
  int64_t shape_[kMaxRank];
  int64_t strides_[kMaxRank];
  Number number_;
};

}  // namespace aotpack::python
