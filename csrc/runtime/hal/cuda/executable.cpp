#include "hal/cuda/executable.h"

#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "hal/cuda/current.h"

namespace aotpack::runtime::cuda {
namespace {

constexpr std::string_view kBinarySuffix = ".cubin";
constexpr std::string_view kIntermediateSuffix = ".ptx";

}  // namespace

CudaExecutable::CudaExecutable(ExecutableSource source, CudaDevice& device)
    : Executable(std::move(source)), device_(device) {
  prepare_assets(record(), what());
}

// An asset `k.cubin` is launched from its own bytes where the device runs them, otherwise from those of `k.ptx`.
void CudaExecutable::prepare_assets(const ModuleRecord& record, const std::string& what) {
  const std::optional<Form> form = form_for(record.target, device_.capability());
  if (!form)
    fail(AOTPACK_UNSUPPORTED_TARGET, "%s: %s does not run %s", what.c_str(), device_.description().c_str(),
         record.target.c_str());
  std::map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < record.assets.size(); ++i) by_name.emplace(record.assets[i].name, i);
  for (const auto& [name, index] : by_name) {
    if (!name.ends_with(kBinarySuffix)) continue;
    const std::string stem(name.substr(0, name.size() - kBinarySuffix.size()));
    const void* code = assets()[index].data;
    if (*form == Form::kIntermediate) {
      const auto text = by_name.find(stem + std::string(kIntermediateSuffix));
      if (text == by_name.end()) {
        fail(AOTPACK_UNSUPPORTED_TARGET, "%s: %s runs code of %s from PTX only, and kernel '%s' has none", what.c_str(),
             device_.description().c_str(), record.target.c_str(), stem.c_str());
      }
      const aotpack_module_asset& asset = assets()[text->second];
      code = texts_.emplace_back(static_cast<const char*>(asset.data), asset.size).c_str();
    }
    assets()[index].handle = &kernels_.emplace_back(device_, "kernel '" + stem + "' of " + what, code);
  }
}

int32_t CudaExecutable::launch(const aotpack_module_call& call, Stream&) const {
  const Current current(device_);
  return table().run(&call);
}

}  // namespace aotpack::runtime::cuda
