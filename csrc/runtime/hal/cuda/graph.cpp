#include "hal/cuda/graph.h"

#include <algorithm>
#include <utility>

#include "hal/cuda/current.h"
#include "hal/cuda/kernel.h"
#include "hal/cuda/stream.h"

namespace aotpack::runtime::cuda {
namespace {

using Kind = Recording::Operation::Kind;

// Elements of 8 bytes are two of 4, which are equal where there are several.
bool is_one_run(const Recording::Operation& fill) {
  switch (fill.item) {
    case 1:
    case 2:
    case 4:
      return true;
    case 8:
      return static_cast<uint32_t>(fill.value) == static_cast<uint32_t>(fill.value >> 32);
    default:
      return false;
  }
}

void relocate(Recording* recording, void* const* slots) {
  for (const Recording::Relocation& relocation : recording->relocations) {
    recording->words[relocation.word] = reinterpret_cast<uint64_t>(slots[relocation.slot]) + relocation.offset;
  }
}

}  // namespace

bool CudaGraph::can_have(const Recording& recording) {
  return !recording.operations.empty() && std::ranges::all_of(recording.operations, [](const Operation& operation) {
    return operation.kind != Kind::kFill || is_one_run(operation);
  });
}

CudaGraph::CudaGraph(CudaDevice& device, Recording recording, void* const* slots)
    : device_(device),
      driver_(device.driver()),
      recording_(std::move(recording)),
      first_slots_(slots, slots + recording_.num_slots()) {
  const Current current(device_);
  relocate(&recording_, slots);
  for (const uint32_t word : recording_.argument_words) arguments_.push_back(recording_.words.data() + word);
  for (const Operation& operation : recording_.operations) {
    auto* kernel = operation.kind == Kind::kLaunch ? static_cast<Kernel*>(operation.launch.code->handle) : nullptr;
    kernels_.push_back(kernel != nullptr ? kernel->get(operation.launch.kernel, operation.launch.shared_bytes)
                                         : nullptr);
  }
  try {
    build();
  } catch (...) {
    destroy();
    throw;
  }
}

void CudaGraph::build() {
  device_.check(driver_.cuGraphCreate(&graph_, 0), "making a graph");
  const size_t count = recording_.operations.size();
  nodes_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const NodeHandle* before = i != 0 ? &nodes_[i - 1] : nullptr;
    if (before == nullptr || !starts_early(i)) {
      nodes_.push_back(add(i, before, before != nullptr));
      continue;
    }
    const NodeHandle made = add(i, nullptr, 0);
    const EdgeData edge{EdgeData::kProgrammatic, 0, EdgeData::kProgrammatic, {}};
    device_.check(driver_.cuGraphAddDependencies_v2(graph_, before, &made, &edge, 1), "making a graph");
    nodes_.push_back(made);
  }
  instances_.reserve(kMostInstances);
  instantiate();
}

// A kernel that waits itself for the kernel before it.
bool CudaGraph::starts_early(uint32_t index) const {
  const auto is_launch = [&](uint32_t i) { return recording_.operations[i].kind == Kind::kLaunch; };
  return driver_.has_early_starts() && is_launch(index) && is_launch(index - 1) &&
         (recording_.operations[index].launch.flags & AOTPACK_LAUNCH_WAITS) != 0;
}

void CudaGraph::instantiate() {
  Instance made{nullptr, first_slots_};
  device_.check(driver_.cuGraphInstantiateWithFlags(&made.exec, graph_, 0), "making a graph");
  instances_.insert(instances_.begin(), std::move(made));
}

CudaGraph::~CudaGraph() {
  try {
    const Current current(device_);
    destroy();
  } catch (...) {  // the graphs of a lost device are gone
  }
}

// Work that still runs goes on.
void CudaGraph::destroy() noexcept {
  for (const Instance& instance : instances_) driver_.cuGraphExecDestroy(instance.exec);
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

KernelNode CudaGraph::kernel_node(uint32_t index) {
  const Operation& operation = recording_.operations[index];
  KernelNode node{};
  std::copy_n(operation.launch.grid, 3, node.grid);
  std::copy_n(operation.launch.block, 3, node.block);
  node.shared_bytes = operation.launch.shared_bytes;
  node.arguments = arguments_.data() + operation.first_argument;
  node.kernel = kernels_[index];
  return node;
}

CopyNode CudaGraph::copy_node(const Operation& operation) const {
  CopyNode node{};
  node.to.device = recording_.words[operation.first_word];
  node.from.device = recording_.words[operation.first_word + 1];
  for (CopyNode::Side* side : {&node.from, &node.to}) {
    side->memory_type = kMemoryOfDevice;
    side->pitch = operation.count;
    side->height = 1;
  }
  node.width = operation.count;
  node.height = node.depth = 1;
  return node;
}

FillNode CudaGraph::fill_node(const Operation& operation) const {
  const bool is_wide = operation.item == 8;
  FillNode node{};
  node.to = recording_.words[operation.first_word];
  node.item = is_wide ? 4 : static_cast<unsigned>(operation.item);
  node.value = static_cast<unsigned>(operation.value);
  if (node.item < 4) node.value &= (1u << 8 * node.item) - 1;
  node.width = is_wide ? 2 * operation.count : operation.count;
  node.height = 1;
  return node;
}

NodeHandle CudaGraph::add(uint32_t index, const NodeHandle* after, size_t num_after) {
  const Operation& operation = recording_.operations[index];
  NodeHandle made = nullptr;
  switch (operation.kind) {
    case Kind::kLaunch: {
      const KernelNode node = kernel_node(index);
      device_.check(driver_.cuGraphAddKernelNode_v2(&made, graph_, after, num_after, &node), "making a graph");
      break;
    }
    case Kind::kCopy: {
      const CopyNode node = copy_node(operation);
      device_.check(driver_.cuGraphAddMemcpyNode(&made, graph_, after, num_after, &node, device_.context()),
                    "making a graph");
      break;
    }
    case Kind::kFill: {
      const FillNode node = fill_node(operation);
      device_.check(driver_.cuGraphAddMemsetNode(&made, graph_, after, num_after, &node, device_.context()),
                    "making a graph");
      break;
    }
  }
  return made;
}

void CudaGraph::update(GraphExecHandle exec, uint32_t index) {
  const Operation& operation = recording_.operations[index];
  Result result = kSuccess;
  switch (operation.kind) {
    case Kind::kLaunch: {
      const KernelNode node = kernel_node(index);
      result = driver_.cuGraphExecKernelNodeSetParams_v2(exec, nodes_[index], &node);
      break;
    }
    case Kind::kCopy: {
      const CopyNode node = copy_node(operation);
      result = driver_.cuGraphExecMemcpyNodeSetParams(exec, nodes_[index], &node, device_.context());
      break;
    }
    case Kind::kFill: {
      const FillNode node = fill_node(operation);
      result = driver_.cuGraphExecMemsetNodeSetParams(exec, nodes_[index], &node, device_.context());
      break;
    }
  }
  device_.check(result, "updating a graph");
}

void CudaGraph::select(void* const* slots) {
  const auto has_these = [&](const Instance& instance) {
    return std::equal(instance.slots.begin(), instance.slots.end(), slots);
  };
  if (has_these(instances_.front())) return;
  if (instances_.size() == kMostInstances) {
    std::swap(instances_[0], instances_[1]);
    if (has_these(instances_.front())) return;
  } else if (std::equal(earlier_slots_.begin(), earlier_slots_.end(), slots, slots + first_slots_.size())) {
    instantiate();
  }
  earlier_slots_ = instances_.front().slots;
  update(&instances_.front(), slots);
}

void CudaGraph::update(Instance* instance, void* const* slots) {
  relocate(&recording_, slots);
  // Relocations are in the order of the operations, so each is updated once.
  uint32_t last = Recording::kNone;
  for (const Recording::Relocation& relocation : recording_.relocations) {
    if (relocation.operation == last || instance->slots[relocation.slot] == slots[relocation.slot]) continue;
    last = relocation.operation;
    update(instance->exec, last);
  }
  std::copy_n(slots, instance->slots.size(), instance->slots.begin());
}

void CudaGraph::launch(Stream& stream, void* const* slots) {
  const Current current(device_);
  select(slots);
  device_.check(driver_.cuGraphLaunch(instances_.front().exec, static_cast<CudaStream&>(stream).busy()),
                "launching a graph");
}

}  // namespace aotpack::runtime::cuda
