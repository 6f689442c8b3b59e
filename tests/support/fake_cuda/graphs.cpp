// Graphs of the fake driver: chains of nodes, of which an executable copy is launched. Layouts as in cuda.h of
// CUDA 12.0.
#include <cstring>
#include <type_traits>

#include "state.h"

using namespace fake_cuda;

struct KernelNodeParams {
  void* function;
  unsigned grid[3], block[3], shared_bytes;
  void** arguments;
  void** extra;
  CUkern_st* kernel;
  CUctx_st* context;
};
struct EdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};
struct MemsetNodeParams {
  Address to;
  size_t pitch;
  unsigned value, item;
  size_t width, height;
};
struct CopySide {
  size_t x, y, z, level;
  unsigned memory_type;
  void* host;
  Address device;
  void* array;
  void* reserved;
  size_t pitch, height;
};
struct CopyParams {
  CopySide from, to;
  size_t width, height, depth;
};

namespace {

bool is_on_device(Address address) {
  for (const Device& device : state().devices) {
    if (device.memory->contains(address)) return true;
  }
  return false;
}

// Each: the work of a node; none where the parameters are wrong.
Work work_of(const KernelNodeParams& node) {
  if (node.function != nullptr || node.kernel == nullptr || node.extra != nullptr) return {};
  return launch_of(node.kernel, node.grid, node.block, node.shared_bytes, node.arguments);
}

Work work_of(const MemsetNodeParams& node) {
  if (!is_on_device(node.to) || node.height != 1 || node.width == 0) return {};
  if (node.item != 1 && node.item != 2 && node.item != 4) return {};
  if (node.item < 4 && node.value >> 8 * node.item != 0) return {};
  return [node] {
    char* memory = device_access(node.to, node.width * node.item);
    for (size_t i = 0; i < node.width; ++i) std::memcpy(memory + i * node.item, &node.value, node.item);
  };
}

Work work_of(const CopyParams& node) {
  constexpr unsigned kDevice = 2;
  if (node.from.memory_type != kDevice || node.to.memory_type != kDevice) return {};
  if (!is_on_device(node.from.device) || !is_on_device(node.to.device)) return {};
  if (node.width == 0 || node.height != 1 || node.depth != 1) return {};
  return [to = node.to.device, from = node.from.device, bytes = node.width] {
    std::memmove(device_access(to, bytes), device_access(from, bytes), bytes);
  };
}

// Every node comes after the one that was added before it, by an edge that it is added with or gets at once.
template <typename Params>
int add(CUgraphNode_st** out, CUgraph_st* graph, CUgraphNode_st* const* after, size_t num_after, const Params* params) {
  if (!state().graphs.contains(graph)) return 400;
  if (graph->is_open) return 1;
  const bool is_first = graph->nodes.empty() || num_after == 0;
  const bool is_chain = is_first ? num_after == 0 : num_after == 1 && *after == graph->nodes.back().get();
  Work work = work_of(*params);
  if (!is_chain || !work) return 1;
  graph->is_open = is_first && !graph->nodes.empty();
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{graph->nodes.size(), std::move(work), std::is_same_v<Params, KernelNodeParams>}));
  *out = graph->nodes.back().get();
  return 0;
}

template <typename Params>
int set(CUgraphExec_st* exec, CUgraphNode_st* node, const Params* params) {
  if (!state().execs.contains(exec)) return 400;
  if (!state().graphs.contains(exec->graph)) return 400;  // nodes are known by those of their graph
  if (node->index >= exec->work.size() || exec->graph->nodes[node->index].get() != node) return 1;
  Work work = work_of(*params);
  if (!work) return 1;
  exec->work[node->index] = std::move(work);
  return 0;
}

}  // namespace

EXPORT int cuStreamIsCapturing(CUstream_st* stream, int* out) {
  ENTER(true);
  const CUstream_st* target = find(stream);
  if (target == nullptr) return 400;
  *out = target->is_capturing;
  return 0;
}

EXPORT int cuGraphCreate(CUgraph_st** out, unsigned flags) {
  ENTER(true);
  if (flags != 0) return 1;
  auto made = std::make_unique<CUgraph_st>();
  *out = made.get();
  state().graphs.emplace(*out, std::move(made));
  return 0;
}

EXPORT int cuGraphDestroy(CUgraph_st* graph) {
  ENTER(true);
  return state().graphs.erase(graph) != 0 ? 0 : 400;
}

EXPORT int cuGraphAddKernelNode_v2(CUgraphNode_st** out, CUgraph_st* graph, CUgraphNode_st* const* after,
                                   size_t num_after, const KernelNodeParams* params) {
  ENTER(true);
  return add(out, graph, after, num_after, params);
}

EXPORT int cuGraphAddMemcpyNode(CUgraphNode_st** out, CUgraph_st* graph, CUgraphNode_st* const* after, size_t num_after,
                                const CopyParams* params, CUctx_st* context) {
  ENTER(true);
  if (context != current.back()) return 1;
  return add(out, graph, after, num_after, params);
}

EXPORT int cuGraphAddMemsetNode(CUgraphNode_st** out, CUgraph_st* graph, CUgraphNode_st* const* after, size_t num_after,
                                const MemsetNodeParams* params, CUctx_st* context) {
  ENTER(true);
  if (context != current.back()) return 1;
  return add(out, graph, after, num_after, params);
}

EXPORT int cuGraphAddDependencies_v2(CUgraph_st* graph, CUgraphNode_st* const* from, CUgraphNode_st* const* to,
                                     const EdgeData* edges, size_t count) {
  ENTER(true);
  if (!state().graphs.contains(graph)) return 400;
  const size_t nodes = graph->nodes.size();
  if (!graph->is_open || count != 1 || nodes < 2) return 1;
  if (*from != graph->nodes[nodes - 2].get() || *to != graph->nodes[nodes - 1].get()) return 1;
  // Between kernels alone.
  if (edges->from_port != 1 || edges->to_port != 0 || edges->type != 1) return 1;
  if (!(*from)->is_kernel || !(*to)->is_kernel) return 1;
  graph->is_open = false;
  (*to)->starts_early = true;
  return 0;
}

EXPORT int cuGraphInstantiateWithFlags(CUgraphExec_st** out, CUgraph_st* graph, unsigned long long flags) {
  ENTER(true);
  if (!state().graphs.contains(graph)) return 400;
  if (flags != 0 || graph->is_open) return 1;
  auto made = std::make_unique<CUgraphExec_st>();
  made->graph = graph;
  for (const auto& node : graph->nodes) {
    made->work.push_back(node->work);
    if (node->starts_early) ++made->early_starts;
  }
  *out = made.get();
  state().execs.emplace(*out, std::move(made));
  return 0;
}

EXPORT int cuGraphExecDestroy(CUgraphExec_st* exec) {
  ENTER(true);
  return state().execs.erase(exec) != 0 ? 0 : 400;
}

EXPORT int cuGraphExecKernelNodeSetParams_v2(CUgraphExec_st* exec, CUgraphNode_st* node,
                                             const KernelNodeParams* params) {
  ENTER(true);
  return set(exec, node, params);
}

EXPORT int cuGraphExecMemcpyNodeSetParams(CUgraphExec_st* exec, CUgraphNode_st* node, const CopyParams* params,
                                          CUctx_st* context) {
  ENTER(true);
  return context == current.back() ? set(exec, node, params) : 1;
}

EXPORT int cuGraphExecMemsetNodeSetParams(CUgraphExec_st* exec, CUgraphNode_st* node, const MemsetNodeParams* params,
                                          CUctx_st* context) {
  ENTER(true);
  return context == current.back() ? set(exec, node, params) : 1;
}

// Later updates do not change what was launched.
EXPORT int cuGraphLaunch(CUgraphExec_st* exec, CUstream_st* stream) {
  ENTER(true);
  if (!state().execs.contains(exec)) return 400;
  for (const Work& work : exec->work) {
    if (const int failed = submit(stream, work)) return failed;
  }
  state().early_starts += exec->early_starts;
  return 0;
}
