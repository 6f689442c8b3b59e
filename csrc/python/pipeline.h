// Pipelines for Python; aotpack/runtime/pipeline.py makes them comfortable.
#pragma once

#include <nanobind/nanobind.h>

namespace aotpack::python {

// The classes NativePipeline and NativeCall.
void bind_pipeline(nanobind::module_& module);

}  // namespace aotpack::python
