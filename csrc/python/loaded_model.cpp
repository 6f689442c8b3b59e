#include "loaded_model.h"

#include <new>

#include "status.h"

namespace aotpack::python {

std::shared_ptr<LoadedModel> LoadedModel::load(const char* path, const aotpack_load_options& options,
                                               int32_t num_threads) {
  std::shared_ptr<LoadedModel> loaded(new LoadedModel);
  loaded->path_ = path;
  loaded->num_threads_ = num_threads;
  aotpack_status* status;
  Py_BEGIN_ALLOW_THREADS;
  status = aotpack_model_load(path, &options, &loaded->model_);
  Py_END_ALLOW_THREADS;
  if (!check(status)) return nullptr;
  size_t length = 0;
  const char* manifest = aotpack_model_manifest(loaded->model_, &length);
  loaded->plans_ = read_call_plans({manifest, length});
  // What was not understood, if anything, is left to Python.
  loaded->plans_.resize(aotpack_model_entry_count(loaded->model_));
  return loaded;
}

LoadedModel::~LoadedModel() {
  for (aotpack_context* context : idle_) aotpack_context_release(context);
  aotpack_model_release(model_);
}

aotpack_status* LoadedModel::take(aotpack_context** out_context) {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      *out_context = idle_.back();
      idle_.pop_back();
      return nullptr;
    }
  }
  aotpack_context_options options{};
  options.struct_size = sizeof options;
  options.num_threads = num_threads_;
  return aotpack_context_create(model_, &options, out_context);
}

void LoadedModel::give_back(aotpack_context* context) noexcept {
  std::lock_guard lock(mutex_);
  try {
    idle_.push_back(context);
  } catch (const std::bad_alloc&) {
    aotpack_context_release(context);
  }
}

std::shared_ptr<OwnContext> OwnContext::create(const LoadedModel& loaded, int32_t num_threads, void* stream,
                                               const std::vector<int32_t>& cpus) {
  std::shared_ptr<OwnContext> own(new OwnContext);
  aotpack_context_options options{};
  options.struct_size = sizeof options;
  options.num_threads = num_threads;
  options.cpus = cpus.data();
  options.cpu_count = cpus.size();
  if (!check(aotpack_context_create(loaded.model(), &options, &own->context_))) return nullptr;
  own->has_stream_ = stream != nullptr;
  if (stream != nullptr && !check(aotpack_context_set_stream(own->context_, stream))) return nullptr;
  return own;
}

}  // namespace aotpack::python
