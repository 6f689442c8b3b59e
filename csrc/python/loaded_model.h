// A loaded model with its pool of contexts, and contexts that callers hold themselves.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aotpack/aotpack.h"
#include "call_plan.h"

namespace aotpack::python {

// Immutable but for the pool, which has a lock: any number of threads may use it.
class LoadedModel {
 public:
  // Null, with a Python exception set, on failure. Needs the GIL.
  static std::shared_ptr<LoadedModel> load(const char* path, const aotpack_load_options& options, int32_t num_threads);
  ~LoadedModel();
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  aotpack_model* model() const { return model_; }
  const CallPlan& plan(size_t entry) const { return plans_[entry]; }
  const std::string& path() const { return path_; }

  // A context for one call: the one given back last, whose memory is warm, or a new one.
  aotpack_status* take(aotpack_context** out_context);
  void give_back(aotpack_context* context) noexcept;

 private:
  LoadedModel() = default;

  std::string path_;
  aotpack_model* model_ = nullptr;
  int32_t num_threads_ = 0;
  std::vector<CallPlan> plans_;
  std::mutex mutex_;
  std::vector<aotpack_context*> idle_;
};

// A context of a caller's own. Calls from several threads wait for each other.
class OwnContext {
 public:
  // Null, with a Python exception set, on failure. Needs the GIL.
  // `stream`: of the caller's, for all calls; NULL: none.
  // `cpus`: those that calls run on; empty: those of the thread that calls.
  static std::shared_ptr<OwnContext> create(const LoadedModel& loaded, int32_t num_threads, void* stream,
                                            const std::vector<int32_t>& cpus);
  ~OwnContext() { aotpack_context_release(context_); }
  OwnContext(const OwnContext&) = delete;
  OwnContext& operator=(const OwnContext&) = delete;

  aotpack_context* get() const { return context_; }
  std::mutex& mutex() { return mutex_; }
  bool has_stream() const { return has_stream_; }

 private:
  OwnContext() = default;
  aotpack_context* context_ = nullptr;
  bool has_stream_ = false;
  std::mutex mutex_;
};

}  // namespace aotpack::python
