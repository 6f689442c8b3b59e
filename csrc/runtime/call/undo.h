// Calls that change the state of their context as a whole or not at all.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "call/state.h"
#include "call/workspace.h"
#include "hal/imports.h"
#include "model/variant.h"

namespace aotpack::runtime {

// Before the steps of a call, copies what they may write to: the state's constants that the variant's modules have.
// Modules write in place, so a call that fails copies them back. That costs as much memory as those constants while the
// call runs, and the time to copy them once; the state stays where it is, and graphs that were recorded stay valid. Of
// a context whose state is the initial one nothing is copied.
class Undo {
 public:
  Undo(State& state, CallState& call, const Workspace& workspace) noexcept
      : state_(state), call_(call), workspace_(workspace) {}
  // Undoes what was kept and not committed. Work of the call on the stream must have ended.
  ~Undo();
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;

  // Throws OUT_OF_MEMORY, INVALID_ARGUMENT on a stream that is captured, or what streams throw; nothing has changed
  // then.
  void keep(const Model& model, const Variant& variant);
  // The call has succeeded.
  void commit() noexcept { kept_ = false; }

 private:
  struct Copy {
    uint32_t constant;
    bool on_host;
    void* block;
    size_t bytes;
  };

  void copy_value(bool on_host, void* to, const void* from, size_t bytes);

  State& state_;
  CallState& call_;
  const Workspace& workspace_;
  bool kept_ = false;
  bool was_initial_ = false;
  uint64_t seed_ = 0;
  std::vector<Copy> copies_;
};

}  // namespace aotpack::runtime
