#include "hal/recording.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "hal/recorder.h"

namespace aotpack::runtime {
namespace {

using Operation = Recording::Operation;

// Of memory on devices; blocks of drivers are at least as aligned.
constexpr size_t kAlignment = 256;

size_t rounded(size_t bytes) { return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment; }

bool same_operation(const Operation& a, const Operation& b) {
  const aotpack_module_launch &x = a.launch, &y = b.launch;
  return a.kind == b.kind && a.first_word == b.first_word && a.first_argument == b.first_argument &&
         a.value == b.value && a.item == b.item && a.count == b.count && x.code == y.code && x.kernel == y.kernel &&
         std::equal(x.grid, x.grid + 3, y.grid) && std::equal(x.block, x.block + 3, y.block) &&
         x.shared_bytes == y.shared_bytes && x.flags == y.flags && x.num_arguments == y.num_arguments;
}

bool same_view(const aotpack_module_tensor& a, const aotpack_module_tensor& b) {
  return a.dtype == b.dtype && a.rank == b.rank && a.rank >= 0 && a.rank <= AOTPACK_MAX_RANK &&
         std::equal(a.sizes, a.sizes + a.rank, b.sizes) && std::equal(a.strides, a.strides + a.rank, b.strides);
}

// The place that two different addresses of the same thing mean; object kNone: none.
Recorder::Place common_place(const Recorder& first, const Recorder& second, uint64_t a, uint64_t b) {
  const Recorder::Place x = first.place_of(a), y = second.place_of(b);
  return x.object == y.object && x.offset == y.offset ? x : Recorder::Place{Recording::kNone, 0};
}

// Where each allocation lies: of those that outputs keep the slot, of the others the offset in the arena.
class Arena {
 public:
  Arena(const Recorder& recorder, const std::vector<bool>& kept) : places_(recorder.allocations().size()) {
    for (const Recorder::Event& event : recorder.events()) {
      if (kept[event.allocation]) continue;
      if (event.is_free) {
        live_.erase(places_[event.allocation]);
      } else {
        place(event.allocation, rounded(recorder.allocations()[event.allocation].bytes));
      }
    }
  }
  uint64_t offset_of(uint32_t allocation) const { return places_[allocation]; }
  size_t bytes() const { return bytes_; }

 private:
  // The first gap that is large enough: work runs in the order in which it is recorded, so memory that was freed is
  // free for what is recorded next.
  void place(uint32_t allocation, size_t bytes) {
    uint64_t at = 0;
    for (const auto& [begin, size] : live_) {
      if (begin - at >= bytes) break;
      at = begin + size;
    }
    places_[allocation] = at;
    live_.emplace(at, bytes);
    bytes_ = std::max(bytes_, at + bytes);
  }

  std::vector<uint64_t> places_;
  std::map<uint64_t, size_t> live_;
  size_t bytes_ = 0;
};

}  // namespace

std::optional<Recording> combine(const Recorder& first, const Recorder& second) {
  if (first.is_refused() || second.is_refused()) return std::nullopt;
  const Recording &a = first.raw(), &b = second.raw();
  const auto same_event = [](const Recorder::Event& x, const Recorder::Event& y) {
    return x.allocation == y.allocation && x.is_free == y.is_free;
  };
  const auto same_size = [](const Recorder::Allocation& x, const Recorder::Allocation& y) {
    return x.bytes == y.bytes;
  };
  if (a.words.size() != b.words.size() || a.argument_words != b.argument_words ||
      first.outputs.size() != second.outputs.size() ||
      !std::ranges::equal(a.operations, b.operations, same_operation) ||
      !std::ranges::equal(first.events(), second.events(), same_event) ||
      !std::ranges::equal(first.allocations(), second.allocations(), same_size)) {
    return std::nullopt;
  }
  Recording made;
  made.operations = a.operations;
  made.words = a.words;
  made.argument_words = a.argument_words;
  made.num_inputs = first.num_inputs();
  const auto inputs = static_cast<uint32_t>(made.num_inputs);

  // The blocks of outputs, which stay when the call ends.
  std::vector<bool> kept(first.allocations().size());
  std::vector<uint32_t> slots(kept.size(), Recording::kNone);
  for (size_t i = 0; i < first.outputs.size(); ++i) {
    const aotpack_module_tensor &x = first.outputs[i], &y = second.outputs[i];
    if (!same_view(x, y) || (x.block == nullptr) != (y.block == nullptr)) return std::nullopt;
    if (x.block == nullptr) continue;
    const Recorder::Place place =
        common_place(first, second, reinterpret_cast<uint64_t>(x.block), reinterpret_cast<uint64_t>(y.block));
    if (place.object == Recording::kNone || place.object < inputs || place.offset != 0) return std::nullopt;
    const uint32_t allocation = place.object - inputs;
    if (!first.allocations()[allocation].is_live) return std::nullopt;
    if (kept[allocation]) continue;
    kept[allocation] = true;
    slots[allocation] = static_cast<uint32_t>(inputs + made.kept_bytes.size());
    made.kept_bytes.push_back(first.allocations()[allocation].bytes);
  }
  const Arena arena(first, kept);
  made.arena_bytes = arena.bytes();
  const auto arena_slot = static_cast<uint32_t>(made.arena_slot());
  const auto in_slot = [&](Recorder::Place place) -> Recorder::Place {
    if (place.object < inputs) return place;
    const uint32_t allocation = place.object - inputs;
    if (kept[allocation]) return {slots[allocation], place.offset};
    return {arena_slot, arena.offset_of(allocation) + place.offset};
  };

  for (uint32_t operation = 0; operation < made.operations.size(); ++operation) {
    const size_t end =
        operation + 1 < made.operations.size() ? made.operations[operation + 1].first_word : made.words.size();
    for (uint32_t word = made.operations[operation].first_word; word < end; ++word) {
      if (a.words[word] == b.words[word]) continue;
      const Recorder::Place place = common_place(first, second, a.words[word], b.words[word]);
      if (place.object == Recording::kNone) return std::nullopt;
      const Recorder::Place slot = in_slot(place);
      made.relocations.push_back({operation, word, slot.object, slot.offset});
    }
  }
  for (size_t i = 0; i < first.outputs.size(); ++i) {
    const aotpack_module_tensor &x = first.outputs[i], &y = second.outputs[i];
    Recording::Output output{x, Recording::kNone, 0, Recording::kNone};
    if (x.data != y.data) {
      const Recorder::Place place =
          common_place(first, second, reinterpret_cast<uint64_t>(x.data), reinterpret_cast<uint64_t>(y.data));
      if (place.object == Recording::kNone) return std::nullopt;
      const Recorder::Place slot = in_slot(place);
      output.data_slot = slot.object;
      output.data_offset = slot.offset;
    }
    if (x.block != nullptr)
      output.block_slot = slots[first.place_of(reinterpret_cast<uint64_t>(x.block)).object - inputs];
    made.outputs.push_back(output);
  }
  return made;
}

}  // namespace aotpack::runtime
