// What a call needs to know about an entry, worked out once at load: calls read it front to back, without look-ups.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "aotpack/aotpack.h"
#include "aotpack/module_abi.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// Where a dim gets its value in a call, and what values are allowed: size(inputs[input], axis) == mul * dim + add.
// Every dim that anything depends on has a source (the manifest's reader sees to it).
struct DimSource {
  static constexpr uint32_t kNumber = UINT32_MAX;
  uint32_t dim;
  uint32_t input;
  uint32_t axis;  // kNumber: the input is an int, whose value it is
  int64_t mul;
  int64_t add;
  int64_t min;  // not negative where a size gives the dim
  int64_t max;
  int64_t multiple_of;
  bool is_special;  // other than a plain size of any multiple

  bool is_plain() const noexcept { return mul == 1 && add == 0; }
};

// An int input that gives a dim which a size has given already, or that must be what a formula of dims gives.
struct NumberUse {
  uint32_t input;
  uint32_t dim;
  const SizeRecord* formula;  // NULL: the dim itself
};

// A size that is computed from the dims of a call: mul * dims[dim] + add, or by a code.
struct DerivedSize {
  uint32_t slot;
  uint32_t dim;
  int64_t mul;
  int64_t add;
  const Code* code;  // NULL: the formula
  // Its first use, for messages.
  const char* role;  // "input", "output", "value"
  const ValueRecord* value;
  uint32_t axis;
};

// The sizes of what the steps of an implementation hand to each other.
struct ValuesPlan {
  std::vector<uint32_t> slots;       // one after another, axis by axis
  std::vector<DerivedSize> derived;  // those that calls of other implementations need not compute
};

// What the checks of an input compare with.
struct InputPlan {
  DLDataType dtype;
  int32_t rank;
  uint32_t item;        // bytes of an element
  uint32_t alignment;   // of an element
  uint32_t first_slot;  // in input_slots(), one per axis
  bool is_static;
  bool is_mutated;
  bool is_row_major;
  bool is_bool;
  bool on_host;           // wherever the model runs
  size_t bytes;           // of the dense tensor, where the shape is static
  const uint32_t* order;  // outermost to innermost
};

// Immutable and thread-safe. Refers to the record, which must outlive it and stay where it is.
//
// All sizes of a call lie in one array: the values of the dims, then the static sizes, then the derived ones. A *slot*
// is an index into it. So every axis is checked alike: by comparing with its slot.
class EntryPlan {
 public:
  static constexpr uint32_t kAnySize = UINT32_MAX;  // in output_slots(): the data tells

  explicit EntryPlan(const EntryRecord& record);

  const EntryRecord& record() const noexcept { return *record_; }

  const std::vector<DimSource>& dim_sources() const noexcept { return dim_sources_; }
  const std::vector<NumberUse>& number_uses() const noexcept { return number_uses_; }
  // The array before a call: static sizes are filled in.
  const std::vector<int64_t>& initial_sizes() const noexcept { return initial_sizes_; }
  const std::vector<DerivedSize>& derived_sizes() const noexcept { return derived_sizes_; }
  // One after another, axis by axis.
  const std::vector<uint32_t>& input_slots() const noexcept { return input_slots_; }
  const std::vector<uint32_t>& output_slots() const noexcept { return output_slots_; }

  const std::vector<InputPlan>& inputs() const noexcept { return inputs_; }
  // Inputs as a module sees them, without data; sizes and strides are complete where the shape is static.
  const std::vector<aotpack_module_tensor>& input_templates() const noexcept { return input_templates_; }
  // Whether a variant is for inputs that are one tensor.
  bool has_same() const noexcept { return has_same_; }
  bool has_mutated_inputs() const noexcept { return has_mutated_inputs_; }
  bool has_bool_inputs() const noexcept { return has_bool_inputs_; }

  // Makes room for the sizes of these. Before any call.
  ValuesPlan add_values(const std::vector<ValueRecord>& values);

 private:
  using AffineSlots = std::map<std::tuple<uint32_t, int64_t, int64_t>, uint32_t>;  // by dim, mul, add
  // Where the slots of some values are noted down.
  struct Slots {
    const char* role;
    std::vector<uint32_t>* slots;
    std::vector<DerivedSize>* derived;
    AffineSlots* affine;
    const AffineSlots* known;  // in every call; NULL: none
  };
  void find_dim_sources();
  void find_formulas();
  void add_slots(const std::vector<ValueRecord>& values, const Slots& out);
  uint32_t slot_of(const SizeRecord& size, const ValueRecord& value, uint32_t axis, const Slots& out);
  void make_inputs();

  const EntryRecord* record_;
  std::vector<DimSource> dim_sources_;
  std::vector<NumberUse> number_uses_;
  std::vector<int64_t> initial_sizes_;
  std::vector<DerivedSize> derived_sizes_;
  AffineSlots affine_slots_;
  std::vector<uint32_t> input_slots_;
  std::vector<uint32_t> output_slots_;
  std::vector<InputPlan> inputs_;
  std::vector<aotpack_module_tensor> input_templates_;
  bool has_same_ = false;
  bool has_mutated_inputs_ = false;
  bool has_bool_inputs_ = false;
};

}  // namespace aotpack::runtime
