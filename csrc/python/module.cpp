// aotpack.runtime._native: the runtime's C interface for Python. aotpack/runtime/ makes it comfortable.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <iterator>
#include <new>
#include <string>
#include <tuple>
#include <utility>

#include "pipeline.h"
#include "runner.h"
#include "status.h"
#include "tensor.h"
#include "weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace aotpack::python {
namespace {

// nanobind's own calls cost more than a small model does, so calls come in through the type's slot.
PyObject* call_slot(PyObject* self, PyObject* args, PyObject* kwargs) {
  try {
    if (!nb::inst_ready(self)) {
      PyErr_SetString(PyExc_RuntimeError, "__init__ has not been called");
      return nullptr;
    }
    return nb::inst_ptr<Runner>(self)->call(self, args, kwargs);
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

PyType_Slot kRunnerSlots[] = {{Py_tp_call, reinterpret_cast<void*>(call_slot)}, {0, nullptr}};

template <typename T>
T require(T value) {
  if (!value) throw nb::python_error();
  return value;
}

// `device`: type and number as DLPack has them. `graphs`, `provider_path`, `prefetch`: as in aotpack_load_options.
void init_load(Runner* self, const std::string& path, bool full, std::optional<bool> copy,
               std::pair<int32_t, int32_t> device, int32_t num_threads, int32_t graphs,
               const std::string& provider_path, bool prefetch) {
  if (path.find('\0') != std::string::npos) throw nb::value_error("embedded null character in the path");
  aotpack_load_options options{};
  options.struct_size = sizeof(options);
  options.verify = full ? AOTPACK_VERIFY_FULL : AOTPACK_VERIFY_CODE;
  if (copy) options.mode = *copy ? AOTPACK_LOAD_COPY : AOTPACK_LOAD_MAP;
  options.device = {static_cast<DLDeviceType>(device.first), device.second};
  options.graphs = graphs;
  options.provider_path = provider_path.c_str();
  options.prefetch = prefetch;
  auto loaded = require(LoadedModel::load(path.c_str(), options, num_threads));
  // "forward" is what a call of the model means; else the first entry.
  size_t entry = 0;
  aotpack_status_release(aotpack_model_find_entry(loaded->model(), "forward", &entry));
  new (self) Runner(std::move(loaded), nullptr, entry);
}

void init_entry(Runner* self, const Runner& parent, const std::string& name) {
  if (name.find('\0') != std::string::npos) {
    set_error("EntryNotFoundError", "the name of an entry cannot contain a null character");
    throw nb::python_error();
  }
  size_t entry = 0;
  aotpack_status* status = aotpack_model_find_entry(parent.loaded()->model(), name.c_str(), &entry);
  if (status && aotpack_status_code(status) == AOTPACK_NOT_FOUND) {
    set_error("EntryNotFoundError", aotpack_status_message(status));
    aotpack_status_release(status);
    throw nb::python_error();
  }
  if (!check(status)) throw nb::python_error();
  new (self) Runner(parent.loaded(), parent.context(), entry);
}

void init_context(Runner* self, const Runner& parent, int32_t num_threads, uintptr_t stream,
                  const std::vector<int32_t>& cpus) {
  auto context = require(OwnContext::create(*parent.loaded(), num_threads, reinterpret_cast<void*>(stream), cpus));
  new (self) Runner(parent.loaded(), std::move(context), parent.entry());
}

const aotpack_value_info& value_info(const Runner& self, bool output, size_t i) {
  return output ? *aotpack_model_output(self.loaded()->model(), self.entry(), i)
                : *aotpack_model_input(self.loaded()->model(), self.entry(), i);
}

std::vector<std::string> value_names(const Runner& self, bool output) {
  aotpack_model* model = self.loaded()->model();
  std::vector<std::string> names;
  const size_t count =
      output ? aotpack_model_output_count(model, self.entry()) : aotpack_model_input_count(model, self.entry());
  for (size_t i = 0; i < count; ++i) names.emplace_back(value_info(self, output, i).name);
  return names;
}

std::vector<std::string> entry_names(const Runner& self) {
  aotpack_model* model = self.loaded()->model();
  std::vector<std::string> names;
  for (size_t i = 0; i < aotpack_model_entry_count(model); ++i) names.emplace_back(aotpack_model_entry_name(model, i));
  return names;
}

std::vector<std::string> number_outputs(const Runner& self) {
  std::vector<std::string> names;
  for (size_t i = 0; i < aotpack_model_output_count(self.loaded()->model(), self.entry()); ++i) {
    const aotpack_value_info& info = value_info(self, true, i);
    if (info.number != AOTPACK_NUMBER_NONE) names.emplace_back(info.name);
  }
  return names;
}

std::vector<std::string> variant_names(const Runner& self) {
  aotpack_model* model = self.loaded()->model();
  std::vector<std::string> names;
  for (size_t i = 0; i < aotpack_model_variant_count(model, self.entry()); ++i) {
    names.emplace_back(aotpack_model_variant_name(model, self.entry(), i));
  }
  return names;
}

// Step, kernel, begin and end of each event; the greatest uint32 where it is all of them.
std::vector<std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>> profile(const Runner& self) {
  std::vector<std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>> events;
  const bool ok = self.with_context([&](aotpack_context* context) -> aotpack_status* {
    for (size_t i = 0; i < aotpack_context_profile_count(context); ++i) {
      const aotpack_profile_event& event = *aotpack_context_profile_event(context, i);
      events.emplace_back(event.step, event.kernel, event.begin_ns, event.end_ns);
    }
    return nullptr;
  });
  if (!ok) throw nb::python_error();
  return events;
}

// Site, kernel, target, numbers, choice, positions and nanoseconds of what the last call recorded.
using Site =
    std::tuple<uint64_t, std::string, std::string, std::vector<int64_t>, uint32_t, std::vector<uint32_t>, uint64_t>;
std::vector<Site> sites(const Runner& self) {
  std::vector<Site> found;
  const bool ok = self.with_context([&](aotpack_context* context) -> aotpack_status* {
    for (size_t i = 0; i < aotpack_context_site_count(context); ++i) {
      const aotpack_site& site = *aotpack_context_site(context, i);
      found.emplace_back(site.site, site.kernel, site.target,
                         std::vector<int64_t>(site.numbers, site.numbers + site.num_numbers), site.choice,
                         std::vector<uint32_t>(std::begin(site.positions), std::end(site.positions)), site.nanoseconds);
    }
    return nullptr;
  });
  if (!ok) throw nb::python_error();
  return found;
}

void set_choices(const Runner& self, const std::vector<std::pair<uint64_t, uint32_t>>& choices, bool record) {
  std::vector<aotpack_choice> given;
  for (const auto& [site, choice] : choices) given.push_back({site, choice, 0});
  const bool ok = self.with_context([&](aotpack_context* context) {
    return aotpack_context_set_choices(context, given.data(), given.size(), record);
  });
  if (!ok) throw nb::python_error();
}

void clear_choices(const Runner& self) {
  if (!self.with_context([](aotpack_context* context) { return aotpack_context_clear_choices(context); })) {
    throw nb::python_error();
  }
}

nb::bytes manifest(const Runner& self) {
  size_t length = 0;
  const char* text = aotpack_model_manifest(self.loaded()->model(), &length);
  return nb::bytes(text, length);
}

void bind_runner(nb::module_& module) {
  nb::class_<Runner> runner(module, "Runner", nb::type_slots(kRunnerSlots), nb::is_weak_referenceable(),
                            "An entry of a model, ready to call; see aotpack.runtime.");
  runner
      .def("__init__", init_load, "path"_a, "full"_a, "copy"_a.none(), "device"_a, "num_threads"_a, "graphs"_a,
           "provider_path"_a, "prefetch"_a)
      .def("__init__", init_entry, "parent"_a, "entry"_a)
      .def("__init__", init_context, "parent"_a, "num_threads"_a, "stream"_a, "cpus"_a)
      .def(
          "_run",
          [](const Runner& self, nb::object inputs, nb::object out) {
            return nb::steal(require(self.run(inputs.ptr(), out.ptr())));
          },
          "inputs"_a, "out"_a.none())
      .def(
          "to_device",
          [](const Runner& self, nb::object array) { return nb::steal(require(self.to_device(array.ptr()))); },
          "array"_a, "A row-major copy of an array on the model's device, which calls use in place.",
          nb::sig("def to_device(self, array: object) -> Tensor"))
      .def("_synchronize",
           [](const Runner& self) {
             if (!self.with_context([](aotpack_context* context) { return aotpack_context_synchronize(context); })) {
               throw nb::python_error();
             }
           })
      .def(
          "_set_profiling",
          [](const Runner& self, bool enabled) {
            if (!self.with_context(
                    [enabled](aotpack_context* context) { return aotpack_context_set_profiling(context, enabled); })) {
              throw nb::python_error();
            }
          },
          "enabled"_a)
      .def("_profile", profile)
      .def("_set_choices", set_choices, "choices"_a, "record"_a)
      .def("_clear_choices", clear_choices)
      .def("_sites", sites)
      .def_prop_ro("_num_stages",
                   [](const Runner& self) { return aotpack_model_stage_count(self.loaded()->model(), self.entry()); })
      .def("_set_seed",
           [](const Runner& self, uint64_t seed) {
             self.set_seed(seed);
             if (PyErr_Occurred()) throw nb::python_error();
           })
      .def_prop_ro("_manifest", manifest)
      .def_prop_ro("_input_names", [](const Runner& self) { return value_names(self, false); })
      .def_prop_ro("_output_names", [](const Runner& self) { return value_names(self, true); })
      .def_prop_ro("_number_outputs", number_outputs)
      .def_prop_ro("variants", variant_names, "The names of the entry's variants in the order in which they are tried.")
      .def_prop_ro(
          "variant", [](const Runner& self) { return nb::steal(require(self.variant())); },
          "The name of the variant that the last call of this entry took in this context; None before the first call,\n"
          "and for a model, whose calls use any context.",
          nb::sig("def variant(self) -> str | None"))
      .def_prop_ro("entry_names", entry_names, "The names of the archive's entries, a list.")
      .def_prop_ro(
          "path", [](const Runner& self) { return self.loaded()->path(); }, "The archive's path.")
      .def_prop_ro(
          "entry_name",
          [](const Runner& self) { return aotpack_model_entry_name(self.loaded()->model(), self.entry()); },
          "The name of the entry that a call runs.")
      .def_prop_ro(
          "target", [](const Runner& self) { return aotpack_model_entry_target(self.loaded()->model(), self.entry()); },
          "The target of the module that was selected for this host, such as \"x86-64-v4\". If the variants of the "
          "entry\n"
          "have modules of different targets, each of these once, such as \"x86-64-v4, x86-64-v3\".")
      .def_prop_ro("_device",
                   [](const Runner& self) {
                     const DLDevice device = aotpack_model_device(self.loaded()->model());
                     return std::pair<int32_t, int32_t>(device.device_type, device.device_id);
                   })
      .def_prop_ro(
          "num_threads",
          [](const Runner& self) {
            const int32_t threads = self.num_threads();
            if (threads < 0) throw nb::python_error();
            return threads;
          },
          "The number of threads per call.");
  bind_weights(runner);
}

}  // namespace
}  // namespace aotpack::python

NB_MODULE(_native, module) {
  // A model or result that lives until the interpreter ends is no leak.
  nb::set_leak_warnings(false);
  aotpack::python::bind_tensor(module);
  aotpack::python::bind_runner(module);
  aotpack::python::bind_pipeline(module);
  module.def("abi_version", &aotpack_abi_version, "The version of the C ABI.");
  module.def("version", &aotpack_version, "The version of the runtime library.");
  module.def("host_processor", &aotpack_host_processor, "The processor of this host, as tuned archives name it.");
  module.def("host_target", &aotpack_host_target, "The best target that this host supports.");
}
