// The devices of this process.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "hal/device.h"

namespace aotpack::runtime {

// The one whose memory the caller's tensors lie in.
Device& host_device() noexcept;
// The one that models run on, unless the caller chooses another.
Device& default_device() noexcept;
// The one that DLPack calls so, {0, 0} for the default. Throws UNSUPPORTED_TARGET with the reason where this process
// has no such device, e.g. that no CUDA driver was found.
Device& find_device(DLDevice id);

// Folders with libraries that modules for devices may ask for, separated by ':'. For the whole process.
void add_library_folders(const std::string& folders);

// What an archive has for a target, and what stands in the way of running it on a device that runs the target: "the
// feature 'x', which this runtime does not provide". Empty: nothing.
struct Candidate {
  std::string_view target;
  std::string obstacle;
};

// Index of the best of `available` for a device. Throws UNSUPPORTED_TARGET with what the archive has and what is
// lacking for each; `what` names the asker.
size_t choose_target(const Device& device, const std::vector<Candidate>& available, const std::string& what);

}  // namespace aotpack::runtime
