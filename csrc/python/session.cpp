#include "session.h"

#include <new>

#include "status.h"

namespace aotpack::python {

std::shared_ptr<Session> Session::load(const char* path, aotpack_verify verify, int32_t num_threads) {
  std::shared_ptr<Session> session(new Session);
  session->path_ = path;
  session->num_threads_ = num_threads;
  const aotpack_load_options options{sizeof(options), verify};
  aotpack_status* status;
  Py_BEGIN_ALLOW_THREADS;
  status = aotpack_model_load(path, &options, &session->model_);
  Py_END_ALLOW_THREADS;
  if (!check(status)) return nullptr;
  size_t length = 0;
  const char* manifest = aotpack_model_manifest(session->model_, &length);
  session->plans_ = read_call_plans({manifest, length});
  // What was not understood, if anything, is left to Python.
  session->plans_.resize(aotpack_model_entry_count(session->model_));
  return session;
}

Session::~Session() {
  for (aotpack_context* context : idle_) aotpack_context_release(context);
  aotpack_model_release(model_);
}

aotpack_status* Session::take(aotpack_context** out_context) {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      *out_context = idle_.back();
      idle_.pop_back();
      return nullptr;
    }
  }
  const aotpack_context_options options{sizeof(options), num_threads_};
  return aotpack_context_create(model_, &options, out_context);
}

void Session::give_back(aotpack_context* context) noexcept {
  std::lock_guard lock(mutex_);
  try {
    idle_.push_back(context);
  } catch (const std::bad_alloc&) {
    aotpack_context_release(context);
  }
}

std::shared_ptr<OwnContext> OwnContext::create(const Session& session, int32_t num_threads) {
  std::shared_ptr<OwnContext> own(new OwnContext);
  const aotpack_context_options options{sizeof(options), num_threads};
  return check(aotpack_context_create(session.model(), &options, &own->context_)) ? own : nullptr;
}

}  // namespace aotpack::python
