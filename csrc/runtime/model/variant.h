// What runs a variant: the steps of the implementation that suits the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "hal/device.h"
#include "manifest/manifest.h"
#include "model/module_call.h"
#include "model/plan.h"
#include "model/tunings.h"

namespace aotpack::runtime {

// One call of a module.
struct Step {
  const ModuleRecord* module = nullptr;
  const Executable* executable = nullptr;
  ModuleCall call;
  bool on_host = false;  // on the host, and the model's device is another
  // References that are the entry's inputs and outputs in their order are left out where the variant is direct.
  std::vector<ReferenceRecord> inputs;
  std::vector<ReferenceRecord> outputs;
  std::vector<uint32_t> last_uses;  // values that no later step reads

  std::vector<bool> numbers;  // by input: whether it is a number, which modules read in memory of the host
  std::vector<const TargetTuning*> tunings;  // of its module, on the host

  size_t num_inputs = 0;
  size_t num_outputs = 0;
  bool mutates_constants = false;  // then every context needs copies of its own
  bool trains = false;             // it replaces what is trained (ConstantRecord)
};

struct Variant {
  const VariantRecord* record = nullptr;
  const ImplementationRecord* implementation = nullptr;
  std::vector<Step> steps;
  ValuesPlan values;  // the sizes of what steps hand to each other
  // One step on the model's device, to which the inputs of the entry are passed as they are bound and whose outputs are
  // those of the entry.
  bool is_direct = false;
};

// ", step 2": which of several a step is, counted from 1, for messages; empty where it is the only one.
std::string step_suffix(const Variant& variant, const Step& step);

// The best implementation for a device, without executables. Implementations are passed over that the device does not
// run, or whose modules need what this runtime lacks. Throws UNSUPPORTED_TARGET with what each of them needs when none
// is left; `what` names the variant.
Variant make_variant(const VariantRecord& record, const Manifest& manifest, EntryPlan* plan, const Device& device,
                     const std::string& what);

}  // namespace aotpack::runtime
