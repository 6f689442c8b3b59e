// Which targets a CUDA device runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aotpack::runtime::cuda {

// A compute capability, e.g. 9.0.
struct Capability {
  int major = 0;
  int minor = 0;
  friend bool operator==(const Capability&, const Capability&) = default;
};

// How a device runs the code of a target.
enum class Form : uint8_t {
  kBinary,       // the target's machine code
  kIntermediate  // its PTX, which the driver compiles
};

// The capability of a target, "cuda-sm_86" -> 8.6; nothing for an unknown target.
std::optional<Capability> capability_of(std::string_view target);
// How a device of that capability runs a target; nothing where it does not.
std::optional<Form> form_for(std::string_view target, Capability device);
// The targets that it runs, best first: views of zero-terminated literals.
std::vector<std::string_view> runnable_targets(Capability device);
// What the target needs and the device lacks; empty where the device runs it.
std::string missing_for(std::string_view target, Capability device);

}  // namespace aotpack::runtime::cuda
