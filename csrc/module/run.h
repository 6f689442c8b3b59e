// Runs the generated function of a module, a member of AOTInductorModel.
#pragma once

#include <vector>

#include "run_call.h"
#include "shim/handles.h"
#include "table.h"

namespace aotpack::module {

inline int32_t run(const aotpack_module_call* call, uint32_t inputs, uint32_t outputs, uint32_t constants) {
  using torch::aot_inductor::ConstantHandle;
  const auto function = [&](const std::vector<ConstantHandle>& constant_handles, Tensor** given, Tensor** results) {
    torch::aot_inductor::AOTInductorModel model(constant_handles);
    model.run_impl(given, results, call->stream, nullptr);
  };
  return run_function<ConstantHandle>(call, inputs, outputs, constants, function);
}

}  // namespace aotpack::module
