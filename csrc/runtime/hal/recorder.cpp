#include "hal/recorder.h"

#include <cstring>

#include "base/status.h"

namespace aotpack::runtime {
namespace {

using Kind = Recording::Operation::Kind;

// Objects are this far apart, in each round: farther than any is large. No memory has addresses like these.
constexpr int kShifts[] = {44, 45};
constexpr uint64_t kBases[] = {uint64_t{1} << 60, uint64_t{1} << 62};
constexpr size_t kMaxObjects = size_t{1} << 16;

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

}  // namespace

Recorder::Recorder(Device& device, size_t num_inputs, Round round)
    : device_(device),
      num_inputs_(num_inputs),
      base_(kBases[static_cast<size_t>(round)]),
      shift_(kShifts[static_cast<size_t>(round)]) {
  if (num_inputs > kMaxObjects) is_refused_ = true;
}

void* Recorder::address(uint32_t object) const noexcept {
  return reinterpret_cast<void*>(base_ + (uint64_t{object} << shift_));
}

Recorder::Place Recorder::place_of(uint64_t address) const noexcept {
  const uint64_t distance = address - base_;
  if (address < base_ || (distance >> shift_) >= num_inputs_ + allocations_.size()) return {Recording::kNone, 0};
  return {static_cast<uint32_t>(distance >> shift_), distance & ((uint64_t{1} << shift_) - 1)};
}

void Recorder::refuse(const char* what) {
  is_refused_ = true;
  fail(AOTPACK_INTERNAL, "%s cannot be recorded", what);
}

void* Recorder::allocate(size_t bytes) {
  const size_t object = num_inputs_ + allocations_.size();
  if (object >= kMaxObjects || bytes >> kShifts[0] != 0) {
    is_refused_ = true;
    return nullptr;
  }
  const auto index = static_cast<uint32_t>(allocations_.size());
  allocations_.push_back({bytes, true});
  events_.push_back({index, false});
  return address(static_cast<uint32_t>(object));
}

void Recorder::free(void* memory) noexcept {
  const Place place = place_of(number(memory));
  if (place.object == Recording::kNone || place.object < num_inputs_ || place.offset != 0) return refuse();
  Allocation& allocation = allocations_[place.object - num_inputs_];
  if (!allocation.is_live) return refuse();
  allocation.is_live = false;
  try {
    events_.push_back({place.object - static_cast<uint32_t>(num_inputs_), true});
  } catch (...) {
    refuse();
  }
}

Recording::Operation& Recorder::add(Kind kind) {
  Recording::Operation& operation = raw_.operations.emplace_back();
  operation = {};
  operation.kind = kind;
  operation.first_word = static_cast<uint32_t>(raw_.words.size());
  operation.first_argument = static_cast<uint32_t>(raw_.argument_words.size());
  return operation;
}

void Recorder::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  add(Kind::kCopy).count = bytes;
  raw_.words.insert(raw_.words.end(), {number(to), number(from)});
}

void Recorder::fill(void* to, uint64_t value, size_t item, size_t count) {
  if (count == 0) return;
  Recording::Operation& operation = add(Kind::kFill);
  operation.value = value;
  operation.item = item;
  operation.count = count;
  raw_.words.push_back(number(to));
}

void Recorder::launch(const aotpack_module_launch& launch) {
  if (launch.grid[0] == 0 || launch.grid[1] == 0 || launch.grid[2] == 0) return;
  if (!device_.argument_sizes(launch, &sizes_)) refuse("a kernel whose arguments are not known");
  Recording::Operation& operation = add(Kind::kLaunch);
  operation.launch = launch;
  operation.launch.arguments = nullptr;
  for (uint32_t i = 0; i < launch.num_arguments; ++i) {
    const size_t at = raw_.words.size();
    raw_.argument_words.push_back(static_cast<uint32_t>(at));
    raw_.words.resize(at + (sizes_[i] + 7) / 8);
    if (sizes_[i] != 0) std::memcpy(&raw_.words[at], launch.arguments[i], sizes_[i]);
  }
}

// Drivers reject addresses like those of a recording. Where the first word of what they make is the address, as it is
// today, that of the recording takes its place, and graphs update it like that of any other argument.
void Recorder::tensor_map(const aotpack_module_tensor_map& map) {
  constexpr uint64_t kPossible = uint64_t{1} << 40;
  aotpack_module_tensor_map possible = map;
  possible.address = reinterpret_cast<const void*>(kPossible);
  device_.tensor_map(possible);
  uint64_t word = 0;
  std::memcpy(&word, map.out, sizeof(word));
  if (word != kPossible) refuse("a tensor map of another form");
  word = number(map.address);
  std::memcpy(map.out, &word, sizeof(word));
}

void Recorder::copy_strided(void*, const int64_t*, const void*, const int64_t*, const int64_t*, int32_t, size_t) {
  refuse("a strided copy");
}

void Recorder::wait() { refuse("a wait"); }

void Recorder::upload(void*, const void*, size_t) { refuse("an upload"); }

void Recorder::download(void*, const void*, size_t) { refuse("a download"); }

// What the module does instead can be recorded, if no library would ever do it.
bool Recorder::provide(const aotpack_module_library_call& call, WorkMemory&) {
  if (device_.has_library(call.operation)) refuse("the work of a library");
  return false;
}

}  // namespace aotpack::runtime
