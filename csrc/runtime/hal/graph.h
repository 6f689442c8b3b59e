// Recorded work as one unit of a device.
#pragma once

#include "hal/stream.h"

namespace aotpack::runtime {

// Belongs to one thread at a time.
class Graph {
 public:
  virtual ~Graph() = default;

  // Submits the work with the memory of this call: the address of each slot of the recording. Work that was submitted
  // before keeps its own. Throws what streams throw; the graph is not used again then.
  virtual void launch(Stream& stream, void* const* slots) = 0;
};

}  // namespace aotpack::runtime
