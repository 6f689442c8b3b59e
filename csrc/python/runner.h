// The callable behind aotpack.Model, aotpack.Entry and aotpack.Context: one entry of a model, run in a context of the
// model's pool or in one of the caller's own.
#pragma once

#include <Python.h>

#include <memory>

#include "loaded_model.h"
#include "status.h"

namespace aotpack::python {

class Runner {
 public:
  Runner(std::shared_ptr<LoadedModel> loaded, std::shared_ptr<OwnContext> context, size_t entry)
      : loaded_(std::move(loaded)), context_(std::move(context)), entry_(entry) {}

  const std::shared_ptr<LoadedModel>& loaded() const { return loaded_; }
  const std::shared_ptr<OwnContext>& context() const { return context_; }
  size_t entry() const { return entry_; }

  // The call as the user wrote it. `self` is this object's Python side, whose `_call_structured` does what is not
  // plain. Null with an exception on failure.
  PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs) const;

  // The same by the entry's tensors alone: a sequence of inputs in order gives a list of the outputs in order. `out` is
  // None or a sequence of arrays to write the outputs into; then these are returned. Null with an exception on failure.
  PyObject* run(PyObject* tensors, PyObject* out) const;

  // The name of the variant that the last call of this entry took in the caller's own context; None before the first
  // call, and where calls take any context. Null with an exception on failure.
  PyObject* variant() const;

  // A copy of an array on the model's device. Null with an exception on failure.
  PyObject* to_device(PyObject* array) const;

  // Threads inside one call; -1 with an exception on failure.
  int32_t num_threads() const;
  void set_seed(uint64_t seed) const;

  // Runs `body`, which takes a context and returns a status, without the GIL: in the caller's own context, one body
  // after the other, or in one of the pool. False with an exception on failure.
  template <typename Body>
  bool with_context(Body body) const;

 private:
  std::shared_ptr<LoadedModel> loaded_;
  std::shared_ptr<OwnContext> context_;  // may be null
  size_t entry_;
};

// The context of one call, which is chosen before the arguments are read where the model runs on a device: those who
// make them let its stream wait for theirs.
class Lease {
 public:
  explicit Lease(const Runner& runner)
      : runner_(runner), device_(aotpack_model_device(runner.loaded()->model())), own_(runner.context().get()) {}
  ~Lease() {
    if (context_ && !own_) runner_.loaded()->give_back(context_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  DLDevice device() const { return device_; }
  void* stream() const { return context_ ? aotpack_context_stream(context_) : nullptr; }

  // Chooses the context where the model runs on a device. False with an exception on failure.
  bool acquire();
  // The stream of the caller's library: the work of the call is part of it, and goes on after run().
  void follow(void* stream) {
    if (is_on_callers_stream()) return;
    follows_ = true;
    followed_ = stream;
  }
  // Like Runner::with_context. Without a stream to follow, results are there when it returns.
  template <typename Body>
  bool run(Body body) const;

 private:
  // The context has the stream that it was created with: the caller orders its work, and waits for it.
  bool is_on_callers_stream() const { return own_ && own_->has_stream(); }
  aotpack_status* set_stream(aotpack_context* context) const;

  const Runner& runner_;
  const DLDevice device_;
  OwnContext* const own_;  // may be null
  aotpack_context* context_ = nullptr;
  bool follows_ = false;
  void* followed_ = nullptr;
};

template <typename Body>
bool Runner::with_context(Body body) const {
  aotpack_status* status;
  Py_BEGIN_ALLOW_THREADS;
  if (context_) {
    std::lock_guard lock(context_->mutex());
    status = body(context_->get());
  } else {
    aotpack_context* context = nullptr;
    status = loaded_->take(&context);
    if (!status) {
      status = body(context);
      loaded_->give_back(context);
    }
  }
  Py_END_ALLOW_THREADS;
  return check(status);
}

template <typename Body>
bool Lease::run(Body body) const {
  if (!context_) return runner_.with_context(body);
  aotpack_status* status;
  Py_BEGIN_ALLOW_THREADS;
  {
    std::unique_lock<std::mutex> lock;
    if (own_) lock = std::unique_lock(own_->mutex());
    status = set_stream(context_);
    if (!status) status = body(context_);
    if (!status && !follows_ && !is_on_callers_stream()) status = aotpack_context_synchronize(context_);
  }
  Py_END_ALLOW_THREADS;
  return check(status);
}

}  // namespace aotpack::python
