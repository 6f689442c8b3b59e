// Recorded work as a CUDA graph.
#pragma once

#include <vector>

#include "hal/cuda/device.h"
#include "hal/graph.h"
#include "hal/recording.h"

namespace aotpack::runtime::cuda {

// A chain of nodes, built from a recording: nothing is captured, so other threads and libraries do not notice. The
// nodes that use a slot are updated when its address changes. Where calls alternate between two sets of addresses, as
// they do when each result is dropped after the next one is made, there is an instance for each.
class CudaGraph final : public Graph {
 public:
  // Whether nodes of a graph do everything that was recorded.
  static bool can_have(const Recording& recording);
  // `slots`: the addresses at first. Throws what CudaDevice::check throws.
  CudaGraph(CudaDevice& device, Recording recording, void* const* slots);
  ~CudaGraph() override;
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(Stream& stream, void* const* slots) override;

 private:
  using Operation = Recording::Operation;

  // What is launched, and the addresses that it has.
  struct Instance {
    GraphExecHandle exec;
    std::vector<void*> slots;
  };
  static constexpr size_t kMostInstances = 2;

  void build();
  NodeHandle add(uint32_t operation, const NodeHandle* after, size_t num_after);
  bool starts_early(uint32_t operation) const;
  void instantiate();
  // Moves the instance for these addresses to the front.
  void select(void* const* slots);
  void update(Instance* instance, void* const* slots);
  void update(GraphExecHandle exec, uint32_t operation);
  void destroy() noexcept;
  KernelNode kernel_node(uint32_t operation);
  CopyNode copy_node(const Operation& operation) const;
  FillNode fill_node(const Operation& operation) const;

  CudaDevice& device_;
  const Driver& driver_;
  Recording recording_;
  const std::vector<void*> first_slots_;
  std::vector<KernelHandle> kernels_;  // by operation; NULL for those that launch none
  std::vector<void*> arguments_;       // by argument: where its value is
  GraphHandle graph_ = nullptr;
  std::vector<NodeHandle> nodes_;     // by operation
  std::vector<Instance> instances_;   // used most recently first
  std::vector<void*> earlier_slots_;  // those that the last update replaced
};

}  // namespace aotpack::runtime::cuda
