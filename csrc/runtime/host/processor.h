// Which processor this is, so that what was measured on one is not used on another.
#pragma once

#include <string>

namespace aotpack::runtime {

// Vendor, family, model and stepping, such as "GenuineIntel-6-207-2"; on aarch64 the main ID register, such as
// "aarch64-0x411fd0c1". Empty where the system does not tell. Made once.
const std::string& processor();

}  // namespace aotpack::runtime
