#include "interpreter.h"

#include <cstring>

#include "control.h"
#include "state.h"

namespace fake_cuda {
namespace {

fake_cuda_interpreter interpreter{};

}  // namespace

int architecture_of(const void* code) {
  const auto* bytes = static_cast<const unsigned char*>(code);
  uint32_t flags;
  std::memcpy(&flags, bytes + 48, sizeof flags);
  // The number moved with version 8 of the ABI.
  return static_cast<int>(bytes[8] >= 8 ? flags >> 8 & 0xFF : flags & 0xFF);
}

bool find_interpreted(InterpretedKernel& out, const void* code, const char* name) {
  if (interpreter.find == nullptr) return false;
  size_t sizes[64], count = 0;
  const int number = interpreter.find(code, name, sizes, &count);
  if (number < 0) return false;
  out.kernel.name = name;
  out.kernel.parameters.assign(sizes, sizes + count);
  out.kernel.run = [number](const std::vector<std::string>& arguments, const Access&, const Grid& grid) {
    std::vector<const void*> addresses;
    for (const std::string& argument : arguments) addresses.push_back(argument.data());
    if (const int result = interpreter.run(number, grid.data(), addresses.data())) throw Fault{result};
  };
  out.handle = std::make_shared<CUkern_st>(CUkern_st{&out.kernel});
  return true;
}

}  // namespace fake_cuda

using namespace fake_cuda;

EXPORT void fake_cuda_set_interpreter(const fake_cuda_interpreter* given) {
  const std::lock_guard lock(state().mutex);
  interpreter = given != nullptr ? *given : fake_cuda_interpreter{};
}

EXPORT uint64_t fake_cuda_shadow(uint64_t address) {
  const std::lock_guard lock(state().mutex);
  for (const Device& device : state().devices) {
    if (device.memory->contains(address)) return reinterpret_cast<uint64_t>(device.memory->shadow(address));
  }
  return address;
}

EXPORT size_t fake_cuda_blocks(uint64_t* out_begins, uint64_t* out_sizes, size_t capacity) {
  const std::lock_guard lock(state().mutex);
  size_t count = 0;
  for (const Device& device : state().devices) {
    for (const auto& [address, size] : device.memory->blocks()) {
      if (count < capacity) {
        out_begins[count] = reinterpret_cast<uint64_t>(device.memory->shadow(address));
        out_sizes[count] = size;
      }
      ++count;
    }
  }
  return count;
}
