#include "hal/cuda/targets.h"

#include "base/status.h"

namespace aotpack::runtime::cuda {
namespace {

struct Target {
  const char* name;
  Capability capability;
  // Compiled for the features of one architecture ("sm_90a"): no other runs its machine code or its PTX.
  bool is_exact;
};

// The newest first. Machine code runs on later minor versions of its major version, PTX on everything that is newer
// (CUDA C++ Programming Guide, "Compute Capabilities" and "Architecture-Specific Features").
constexpr Target kTargets[] = {
    {"cuda-sm_120", {12, 0}, true}, {"cuda-sm_100", {10, 0}, true}, {"cuda-sm_90", {9, 0}, true},
    {"cuda-sm_89", {8, 9}, false},  {"cuda-sm_86", {8, 6}, false},  {"cuda-sm_80", {8, 0}, false},
};

const Target* find_target(std::string_view name) {
  for (const Target& target : kTargets) {
    if (name == target.name) return &target;
  }
  return nullptr;
}

bool is_at_least(Capability device, Capability wanted) {
  return device.major > wanted.major || (device.major == wanted.major && device.minor >= wanted.minor);
}

}  // namespace

std::optional<Capability> capability_of(std::string_view target) {
  const Target* known = find_target(target);
  return known != nullptr ? std::optional(known->capability) : std::nullopt;
}

std::optional<Form> form_for(std::string_view target, Capability device) {
  const Target* known = find_target(target);
  if (known == nullptr) return std::nullopt;
  if (device == known->capability) return Form::kBinary;
  if (known->is_exact || !is_at_least(device, known->capability)) return std::nullopt;
  return device.major == known->capability.major ? Form::kBinary : Form::kIntermediate;
}

std::vector<std::string_view> runnable_targets(Capability device) {
  std::vector<std::string_view> targets;
  for (const Target& target : kTargets) {
    if (form_for(target.name, device)) targets.emplace_back(target.name);
  }
  return targets;
}

std::string missing_for(std::string_view target, Capability device) {
  const Target* known = find_target(target);
  if (known == nullptr) return target.starts_with("cuda-") ? "an unknown target" : "the CPU";
  if (form_for(target, device)) return "";
  const std::string wanted = format("compute capability %d.%d", known->capability.major, known->capability.minor);
  return known->is_exact ? wanted + " exactly" : wanted + " or later";
}

}  // namespace aotpack::runtime::cuda
