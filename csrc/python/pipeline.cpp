#include "pipeline.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "call_tensors.h"
#include "named_arrays.h"
#include "object.h"
#include "runner.h"
#include "status.h"
#include "tensor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace aotpack::python {
namespace {

// While Python waits, signals are looked for this often.
constexpr int64_t kSliceNs = 50'000'000;

const char* const kStateHint = "nothing was changed; Pipeline.state() lists the tensors of a state";

void require(bool ok) {
  if (!ok) throw nb::python_error();
}

// Runs `body`, which returns a status, without the GIL.
template <typename Body>
void without_gil(Body body) {
  aotpack_status* status;
  {
    const nb::gil_scoped_release released;
    status = body();
  }
  require(check(status));
}

// A call of a pipeline, until its results are taken.
class NativeCall {
 public:
  // `inputs`: what the call may write to.
  NativeCall(std::shared_ptr<LoadedModel> loaded, size_t entry, aotpack_call* call, std::unique_ptr<Inputs> inputs)
      : loaded_(std::move(loaded)), entry_(entry), call_(call), inputs_(std::move(inputs)), kind_(inputs_->kind()) {
    bool writes = false;
    for (size_t i = 0; i < aotpack_model_input_count(loaded_->model(), entry_); ++i) {
      writes = writes || aotpack_model_input(loaded_->model(), entry_, i)->mutated;
    }
    if (!writes) inputs_.reset();  // copied
  }
  NativeCall(const NativeCall&) = delete;
  NativeCall& operator=(const NativeCall&) = delete;
  ~NativeCall() {
    const nb::gil_scoped_release released;
    aotpack_call_release(call_);
  }

  // `seconds`: negative waits for as long as it takes.
  bool wait(double seconds) {
    // A day is as good as any longer time: callers wait again.
    int64_t left = seconds < 0 ? INT64_MAX : static_cast<int64_t>(std::min(seconds, 86400.0) * 1e9);
    for (;;) {
      const int64_t slice = std::min(left, kSliceNs);
      bool ended = false;
      without_gil([&] { return aotpack_call_wait(call_, slice, &ended); });
      if (ended) {
        inputs_.reset();
        return true;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (seconds >= 0) left -= slice;
      if (left <= 0) return false;
    }
  }

  nb::object take() {
    const size_t count = aotpack_model_output_count(loaded_->model(), entry_);
    Outputs outputs(loaded_->model(), entry_, count);
    wait(-1);
    require(check(aotpack_call_take(call_, outputs.data(), count)));
    nb::list results;
    for (size_t i = 0; i < count; ++i) {
      PyObject* item = outputs.wrap(i, kind_);
      require(item != nullptr);
      results.append(nb::steal(item));
    }
    return results;
  }

 private:
  std::shared_ptr<LoadedModel> loaded_;
  size_t entry_;
  aotpack_call* call_;
  std::unique_ptr<Inputs> inputs_;
  ArrayKind kind_;
};

using WorkerOptions = std::tuple<size_t, std::vector<int32_t>, int32_t>;  // stage, CPUs, threads

class NativePipeline {
 public:
  NativePipeline(const Runner& runner, const std::vector<WorkerOptions>& workers, size_t max_in_flight,
                 std::optional<uint64_t> seed)
      : loaded_(runner.loaded()), entry_(runner.entry()) {
    std::vector<aotpack_pipeline_worker> all;
    all.reserve(workers.size());
    std::vector<const aotpack_pipeline_worker*> pointers;
    for (const auto& [stage, cpus, threads] : workers) {
      all.push_back({sizeof(aotpack_pipeline_worker), stage, cpus.data(), cpus.size(), threads, 0});
      pointers.push_back(&all.back());
    }
    const aotpack_pipeline_options options{sizeof options, entry_,           pointers.data(), pointers.size(),
                                           max_in_flight,  seed.value_or(0), seed.has_value()};
    without_gil([&] { return aotpack_pipeline_create(loaded_->model(), &options, &pipeline_); });
  }
  NativePipeline(const NativePipeline&) = delete;
  NativePipeline& operator=(const NativePipeline&) = delete;
  ~NativePipeline() {
    const nb::gil_scoped_release released;
    aotpack_pipeline_release(pipeline_);
  }

  std::shared_ptr<NativeCall> submit(nb::list given) {
    aotpack_model* model = loaded_->model();
    // A tuple of our own: reading an item runs code of the caller's, which may change a list.
    const nb::tuple objects(given);
    const size_t count = aotpack_model_input_count(model, entry_);
    if (objects.size() != count) {
      set_error("InputError", "the entry '" + std::string(aotpack_model_entry_name(model, entry_)) + "' has " +
                                  std::to_string(count) + " input" + (count == 1 ? "" : "s") + ", got " +
                                  std::to_string(objects.size()));
      throw nb::python_error();
    }
    auto inputs = std::make_unique<Inputs>(count, aotpack_model_device(model), nullptr);
    for (size_t i = 0; i < count; ++i) {
      require(inputs->import(i, objects[i].ptr(), *aotpack_model_input(model, entry_, i)));
    }
    aotpack_call* call = nullptr;
    without_gil([&] { return aotpack_pipeline_submit(pipeline_, inputs->tensors(), count, &call); });
    return std::make_shared<NativeCall>(loaded_, entry_, call, std::move(inputs));
  }

  void close(bool cancel) {
    without_gil([&] { return aotpack_pipeline_close(pipeline_, cancel); });
  }

  nb::dict state() {
    aotpack_model* model = loaded_->model();
    nb::dict result;
    for (size_t i = 0; i < aotpack_model_state_count(model); ++i) {
      DLManagedTensorVersioned* tensor = nullptr;
      without_gil([&] { return aotpack_pipeline_get_state(pipeline_, i, &tensor); });
      PyObject* object = new_tensor_object(tensor);
      require(object != nullptr);
      result[aotpack_model_state(model, i)->name] = nb::steal(object);
    }
    return result;
  }

  void load_state(const std::vector<std::string>& names, nb::list arrays) {
    aotpack_model* model = loaded_->model();
    const Given given(model, "state", aotpack_model_state, aotpack_model_state_count(model), names, arrays, false,
                      aotpack_model_device(model));
    aotpack_status* refused;
    {
      const nb::gil_scoped_release released;
      refused = aotpack_pipeline_load_state(pipeline_, given.names(), given.tensors(), given.size());
    }
    require(check_weights(refused, kStateHint));
  }

  void reset() {
    without_gil([&] { return aotpack_pipeline_reset(pipeline_); });
  }

 private:
  std::shared_ptr<LoadedModel> loaded_;
  size_t entry_;
  aotpack_pipeline* pipeline_ = nullptr;
};

}  // namespace

void bind_pipeline(nb::module_& module) {
  nb::class_<NativeCall>(module, "NativeCall")
      .def("wait", &NativeCall::wait, "seconds"_a)
      .def("take", &NativeCall::take);
  nb::class_<NativePipeline>(module, "NativePipeline")
      .def(nb::init<const Runner&, const std::vector<WorkerOptions>&, size_t, std::optional<uint64_t>>(), "runner"_a,
           "workers"_a, "max_in_flight"_a, "seed"_a.none())
      .def("submit", &NativePipeline::submit, "inputs"_a)
      .def("close", &NativePipeline::close, "cancel"_a)
      .def("state", &NativePipeline::state)
      .def("load_state", &NativePipeline::load_state, "names"_a, "arrays"_a)
      .def("reset", &NativePipeline::reset);
}

}  // namespace aotpack::python
