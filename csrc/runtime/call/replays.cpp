#include "call/replays.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"

namespace aotpack::runtime {
namespace {

bool is_on_host(const aotpack_module_call& call, size_t input) { return call.input_devices[input].type == kDLCPU; }

// Everything that the host code of a module can see of a call, but addresses.
void make_key(const Step& step, const aotpack_module_call& call, uint64_t weights, uint64_t state,
              std::vector<int64_t>* out) {
  out->assign({static_cast<int64_t>(weights), static_cast<int64_t>(state)});
  for (size_t i = 0; i < step.num_inputs; ++i) {
    const aotpack_module_tensor& input = call.inputs[i];
    out->insert(out->end(), input.sizes, input.sizes + input.rank);
    if (!is_on_host(call, i)) continue;
    int64_t number = 0;
    std::memcpy(&number, input.data, input.dtype == AOTPACK_DTYPE_BOOL ? 1 : sizeof number);
    out->push_back(number);
  }
}

// What imports act on is the recorder, for the lifetime of this.
class RecordingScope {
 public:
  RecordingScope(CallState* state, Recorder* recorder) : state_(*state), stream_(state->stream) {
    state_.recorder = recorder;
    state_.stream = recorder;
  }
  ~RecordingScope() {
    state_.recorder = nullptr;
    state_.stream = stream_;
    state_.reset();
  }
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  CallState& state_;
  Stream* const stream_;
};

// Calls the module, which works at addresses of no memory. False when it asks for what cannot be recorded.
bool record(Recorder* recorder, const Step& step, aotpack_module_call call, CallState* state) {
  std::vector<aotpack_module_tensor> inputs(call.inputs, call.inputs + step.num_inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!is_on_host(call, i)) inputs[i].data = recorder->input(i);
  }
  recorder->outputs.resize(step.num_outputs);
  call.inputs = inputs.data();
  call.outputs = recorder->outputs.data();
  const RecordingScope scope(state, recorder);
  const int32_t code = step.executable->launch(call, *recorder);
  return code == AOTPACK_MODULE_OK && !recorder->is_refused();
}

// Nothing where the work cannot be recorded.
std::optional<Recording> record_twice(Device& device, const Step& step, const aotpack_module_call& call,
                                      CallState* state) {
  Recorder first(device, step.num_inputs, Recorder::Round::kFirst);
  Recorder second(device, step.num_inputs, Recorder::Round::kSecond);
  if (!record(&first, step, call, state) || !record(&second, step, call, state)) return std::nullopt;
  return combine(first, second);
}

}  // namespace

class Replays::Memory {
 public:
  // `blocks`: for the list of blocks. Throws std::bad_alloc.
  Memory(const std::vector<size_t>& bytes, Allocator* allocator, std::vector<void*>* blocks) : blocks_(*blocks) {
    blocks_.clear();
    blocks_.reserve(bytes.size());
    for (const size_t size : bytes) {
      void* block = allocator->allocate(size);
      is_there_ = block != nullptr;
      if (!is_there_) return;
      blocks_.push_back(block);
    }
  }
  ~Memory() {
    if (is_kept_) return;
    for (void* block : blocks_) Allocator::release_block(block);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bool is_there() const noexcept { return is_there_; }
  void* data(size_t index) const noexcept { return Allocator::data(blocks_[index]); }
  // Blocks of the same size change places, so that as many as possible have the addresses of that launch.
  void arrange(const std::vector<size_t>& bytes, const std::vector<void*>& last) noexcept {
    for (size_t i = 0; i < last.size(); ++i) {
      if (data(i) == last[i]) continue;
      for (size_t j = 0; j < last.size(); ++j) {
        if (bytes[j] != bytes[i] || data(j) != last[i]) continue;
        std::swap(blocks_[i], blocks_[j]);
        break;
      }
    }
  }
  // The blocks of outputs are the caller's from now on; the last one is free for work that is submitted later.
  const std::vector<void*>& keep() noexcept {
    Allocator::release_block(blocks_.back());
    blocks_.pop_back();
    is_kept_ = true;
    return blocks_;
  }

 private:
  std::vector<void*>& blocks_;
  bool is_there_ = true;
  bool is_kept_ = false;
};

Replays::Replay* Replays::find(List* list, const Step& step) const {
  for (auto at = list->begin(); at != list->end(); ++at) {
    if ((*at)->step != &step || (*at)->key != key_) continue;
    std::rotate(list->begin(), at, at + 1);
    return list->front().get();
  }
  return nullptr;
}

bool Replays::has_room() const noexcept {
  return graphs_.size() < limit_ || calls_ - graphs_.back()->last_use > kPatience * limit_;
}

bool Replays::refuse(const Step& step) {
  for (List* list : {&graphs_, &candidates_}) {
    std::erase_if(*list, [&](const auto& replay) { return replay->step == &step; });
  }
  refused_.insert(&step);
  return false;
}

bool Replays::find_and_run(const Step& step, const aotpack_module_call& call, uint64_t weights, uint64_t state,
                           CallState* call_state, const Workspace& workspace) {
  const bool cannot = step.on_host || (step.executable->features() & AOTPACK_MODULE_FEATURE_HOST_STEPS) != 0;
  if (cannot || (!refused_.empty() && refused_.contains(&step)) || workspace.stream().is_captured()) return false;
  ++calls_;
  if (weights != weights_) {
    graphs_.clear();
    candidates_.clear();
    weights_ = weights;
  }
  make_key(step, call, weights, state, &key_);
  Replay* replay = find(&graphs_, step);
  const bool is_new = replay == nullptr;
  if (is_new) {
    replay = find(&candidates_, step);
    if (replay == nullptr) {
      if (candidates_.size() == 2 * limit_) candidates_.pop_back();
      candidates_.insert(candidates_.begin(), std::make_unique<Replay>(Replay{&step, key_, 0, nullptr, {}, {}, {}}));
      return false;
    }
    if (!has_room()) return false;
  }
  try {
    if (!launch(*replay, call, call_state, workspace)) return false;
  } catch (const Error&) {  // plain launches need less of the device, and say what is wrong
    return refuse(step);
  }
  replay->last_use = calls_;
  if (is_new) {
    if (graphs_.size() == limit_) graphs_.pop_back();
    graphs_.insert(graphs_.begin(), std::move(candidates_.front()));
    candidates_.erase(candidates_.begin());
  }
  return true;
}

bool Replays::launch(Replay& replay, const aotpack_module_call& call, CallState* call_state,
                     const Workspace& workspace) {
  const Step& step = *replay.step;
  std::optional<Recording> recording;
  if (replay.graph == nullptr) {
    recording = record_twice(device_, step, call, call_state);
    if (!recording) return refuse(step);
    replay.outputs = recording->outputs;
    replay.block_bytes = recording->kept_bytes;
    replay.block_bytes.push_back(recording->arena_bytes);
    for (std::vector<void*>& memory : replay.memory) memory.clear();
  }
  Memory memory(replay.block_bytes, workspace.allocator(), &blocks_);
  if (!memory.is_there()) return false;
  memory.arrange(replay.block_bytes, replay.memory[1]);
  memory.arrange(replay.block_bytes, replay.memory[0]);
  slots_.clear();
  for (size_t i = 0; i < step.num_inputs; ++i) slots_.push_back(call.inputs[i].data);
  for (size_t i = 0; i < replay.block_bytes.size(); ++i) slots_.push_back(memory.data(i));
  if (recording) {
    replay.graph = device_.make_graph(std::move(*recording), slots_.data());
    if (replay.graph == nullptr) return refuse(step);
  }
  replay.memory[1].swap(replay.memory[0]);
  replay.memory[0].assign(slots_.end() - static_cast<std::ptrdiff_t>(replay.block_bytes.size()), slots_.end());
  replay.graph->launch(workspace.stream(), slots_.data());
  const std::vector<void*>& blocks = memory.keep();
  for (size_t i = 0; i < replay.outputs.size(); ++i) {
    const Recording::Output& output = replay.outputs[i];
    aotpack_module_tensor& tensor = call.outputs[i];
    tensor = output.tensor;
    if (output.data_slot != Recording::kNone) {
      tensor.data = static_cast<char*>(slots_[output.data_slot]) + output.data_offset;
    }
    tensor.block = output.block_slot != Recording::kNone ? blocks[output.block_slot - step.num_inputs] : nullptr;
  }
  return true;
}

}  // namespace aotpack::runtime
