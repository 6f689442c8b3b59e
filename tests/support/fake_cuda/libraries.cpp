// Code and kernels of the fake driver.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "state.h"

using namespace fake_cuda;

// As in cuda.h of CUDA 12.3.
struct LaunchAttribute {
  int id, padding, value, rest[15];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared_bytes;
  CUstream_st* stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

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

// Of matrices. Drivers write words of their own after the address; these are for the interpreter.
EXPORT int cuTensorMapEncodeTiled(void* out, int type, uint32_t rank, void* address, const uint64_t* sizes,
                                  const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
                                  int swizzle, int promotion, int out_of_bounds) {
  ENTER(true);
  const auto at = reinterpret_cast<uint64_t>(address);
  const int items[] = {1, 2, 4, 4, 8, 8};
  if (type < 0 || type >= 6 || rank != 2 || interleave != 0 || swizzle < 0 || swizzle > 3 || out_of_bounds != 0)
    return 1;
  if (promotion < 0 || promotion > 3 || reinterpret_cast<uint64_t>(out) % 64 != 0) return 1;
  const auto item = static_cast<uint64_t>(items[type]);
  const bool is_possible = at % 16 == 0 && at >> 57 == 0 && strides[0] % 16 == 0 && strides[0] >> 40 == 0;
  if (!is_possible || steps[0] != 1 || steps[1] != 1) return 1;
  for (int i = 0; i < 2; ++i) {
    if (sizes[i] == 0 || sizes[i] >> 32 != 0 || box[i] == 0 || box[i] > 256) return 1;
  }
  if (swizzle != 0 && box[0] * item > uint64_t{16} << swizzle) return 1;
  const uint64_t words[16] = {at, sizes[0], sizes[1], strides[0] / item, box[0], box[1], item};
  std::memcpy(out, words, sizeof words);
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
  if (!work) return 1;
  const int result = submit(stream, std::move(work));
  if (result == 0) find(stream)->ends_with_kernel = true;
  return result;
}

// Of attributes, only that the kernel waits itself for the work before it, which the driver without a GPU does for all.
// That has to be a kernel.
EXPORT int cuLaunchKernelEx(const LaunchConfig* config, CUkern_st* kernel, void** arguments, void** extra) {
  {
    ENTER(true);
    if (config->num_attributes != 1 || config->attributes->id != 6 || config->attributes->value != 1) return 1;
    const CUstream_st* stream = find(config->stream);
    if (stream == nullptr) return 400;
    if (!stream->ends_with_kernel) return 1;
    ++state().early_starts;
  }
  const unsigned *grid = config->grid, *block = config->block;
  return cuLaunchKernel(kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2], config->shared_bytes,
                        config->stream, arguments, extra);
}
