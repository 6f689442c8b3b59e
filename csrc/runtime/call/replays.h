// The graphs of a context: steps that were recorded are submitted to the device as one unit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "call/workspace.h"
#include "hal/graph.h"
#include "hal/imports.h"
#include "hal/recording.h"
#include "model/variant.h"

namespace aotpack::runtime {

// What a step submits depends on the sizes of its inputs, its numbers and the places of its constants: there is a graph
// for each of these combinations that was seen twice, up to a limit. The graph that was used least recently makes room
// for another one when it was not used for many calls: making one costs as much as dozens of calls. Graphs hold the
// addresses of weights, so those of replaced weights are dropped. Belongs to one thread at a time.
class Replays {
 public:
  // At most `limit` graphs; 0: none.
  Replays(Device& device, size_t limit) : device_(device), limit_(device.has_graphs() ? limit : 0) {}

  // Runs a step on the device: fills the outputs, whose blocks are those of the allocator. False, with nothing done,
  // where the step is to be launched: at its first call with such inputs, and where its work cannot be recorded or the
  // device fails. `weights` and `state` say which constants the call has; weights that were replaced never come again.
  // Throws std::bad_alloc.
  bool run(const Step& step, const aotpack_module_call& call, uint64_t weights, uint64_t state, CallState* call_state,
           const Workspace& workspace) {
    if (limit_ == 0) return false;
    return find_and_run(step, call, weights, state, call_state, workspace);
  }
  void clear() noexcept { graphs_.clear(); }

 private:
  struct Replay {
    const Step* step;
    std::vector<int64_t> key;
    uint64_t last_use = 0;  // in calls
    std::unique_ptr<Graph> graph;
    std::vector<Recording::Output> outputs;
    std::vector<size_t> block_bytes;  // of the slots after the inputs
    std::vector<void*> memory[2];     // these, in the last launch and in the one before
  };
  // Used most recently first.
  using List = std::vector<std::unique_ptr<Replay>>;
  static constexpr uint64_t kPatience = 64;  // in calls, for each graph
  // Memory for one launch.
  class Memory;

  bool find_and_run(const Step& step, const aotpack_module_call& call, uint64_t weights, uint64_t state,
                    CallState* call_state, const Workspace& workspace);
  // Moves it to the front. NULL: there is none for the current key.
  Replay* find(List* list, const Step& step) const;
  bool has_room() const noexcept;
  bool refuse(const Step& step);
  bool launch(Replay& replay, const aotpack_module_call& call, CallState* call_state, const Workspace& workspace);

  Device& device_;
  const size_t limit_;
  uint64_t calls_ = 0;
  uint64_t weights_ = 0;  // of the last call
  List graphs_;
  List candidates_;  // seen once, or without room for a graph
  std::set<const Step*> refused_;
  std::vector<int64_t> key_;  // of the current call
  std::vector<void*> slots_;
  std::vector<void*> blocks_;  // of the current launch
};

}  // namespace aotpack::runtime
