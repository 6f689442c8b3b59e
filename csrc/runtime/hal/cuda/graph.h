// Recorded work as a CUDA graph.
#pragma once

#include <vector>

#include "hal/cuda/device.h"
#include "hal/graph.h"
#include "hal/recording.h"

namespace aotpack::runtime::cuda {

// A chain of nodes, built from a recording: nothing is captured, so other threads and libraries do not notice. The
// nodes that use a slot are updated when its address changes.
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

  void build();
  NodeHandle add(uint32_t operation, const NodeHandle* after, size_t num_after);
  void update(uint32_t operation);
  void destroy() noexcept;
  KernelNode kernel_node(uint32_t operation);
  CopyNode copy_node(const Operation& operation) const;
  FillNode fill_node(const Operation& operation) const;

  CudaDevice& device_;
  const Driver& driver_;
  Recording recording_;
  std::vector<void*> slots_;
  std::vector<KernelHandle> kernels_;  // by operation; NULL for those that launch none
  std::vector<void*> arguments_;       // by argument: where its value is
  GraphHandle graph_ = nullptr;
  GraphExecHandle exec_ = nullptr;
  std::vector<NodeHandle> nodes_;  // by operation
};

}  // namespace aotpack::runtime::cuda
