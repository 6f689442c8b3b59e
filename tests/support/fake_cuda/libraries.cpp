// Code and kernels of the fake driver.
#include <cstdio>
#include <cstdlib>

#include "state.h"

using namespace fake_cuda;

EXPORT int cuLibraryLoadData(CUlib_st** out, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
  ENTER(true);
  const std::string text = static_cast<const char*>(code);
  const bool is_elf = text.starts_with(
      "\x7f"
      "ELF");
  int architecture = is_elf ? architecture_of(code) : 0;
  const bool is_binary = is_elf || std::sscanf(text.c_str(), "FAKECUBIN sm_%d", &architecture) == 1;
  const size_t target = text.find(".target sm_");
  if (!is_binary && (target == std::string::npos || text.find(".version") == std::string::npos)) return 218;
  if (!is_binary) architecture = std::atoi(text.c_str() + target + 11);
  const int own = here().major * 10 + here().minor;
  const bool runs = is_binary ? own / 10 == architecture / 10 && own >= architecture : own >= architecture;
  if (!runs) return 209;
  auto made = std::make_unique<CUlib_st>();
  made->code = text;
  made->binary = is_elf ? code : nullptr;
  *out = made.get();
  state().libraries.emplace(*out, std::move(made));
  return 0;
}

EXPORT int cuLibraryUnload(CUlib_st* library) {
  ENTER(true);
  drain_all();
  return state().libraries.erase(library) != 0 ? 0 : 400;
}

EXPORT int cuLibraryGetKernel(CUkern_st** out, CUlib_st* library, const char* name) {
  ENTER(true);
  if (!state().libraries.contains(library)) return 400;
  if (library->binary != nullptr) {
    InterpretedKernel& interpreted = library->interpreted[name];
    if (interpreted.handle == nullptr && !find_interpreted(interpreted, library->binary, name)) return 500;
    *out = interpreted.handle.get();
    return 0;
  }
  const fake_cuda::Kernel* kernel = fake_cuda::find_kernel(name);
  if (kernel == nullptr || library->code.find(name) == std::string::npos) return 500;
  auto& known = state().kernels[name];
  if (known == nullptr) known = std::make_unique<CUkern_st>(CUkern_st{kernel});
  *out = known.get();
  return 0;
}

EXPORT int cuKernelSetAttribute(int attribute, int value, CUkern_st* kernel, int) {
  ENTER(true);
  if (attribute != 8 || value > (227 << 10)) return 1;
  kernel->max_shared = value;
  return 0;
}

EXPORT int cuKernelGetParamInfo(CUkern_st* kernel, size_t index, size_t* out_offset, size_t* out_size) {
  ENTER(true);
  const std::vector<size_t>& parameters = kernel->kernel->parameters;
  if (index >= parameters.size()) return 1;
  *out_offset = 0;
  for (size_t i = 0; i < index; ++i) *out_offset += parameters[i];
  *out_size = parameters[index];
  return 0;
}

EXPORT int cuLaunchKernel(CUkern_st* kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                          unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream_st* stream,
                          void** arguments, void** extra) {
  ENTER(true);
  const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  Work work = extra == nullptr ? launch_of(kernel, grid, block, shared_bytes, arguments) : Work();
  return work ? submit(stream, std::move(work)) : 1;
}
