// What a call needs to know about an entry, worked out once at load so that calls do no look-ups.
#ifndef AOTPACK_RUNTIME_PLAN_H_
#define AOTPACK_RUNTIME_PLAN_H_

#include <cstdint>
#include <vector>

#include "aotpack/aotpack.h"
#include "aotpack/module_abi.h"
#include "manifest.h"

namespace aotpack::runtime {

// Where a dim gets its value in a call: size(inputs[input], axis) == mul * dim + add. Every dim that anything depends
// on has a source (the manifest's reader sees to it).
struct DimSource {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t input = kNone;
  uint32_t axis = 0;
  int64_t mul = 1;
  int64_t add = 0;
};

// Immutable and thread-safe. Refers to the record, which must outlive it and stay where it is.
class EntryPlan {
 public:
  explicit EntryPlan(const EntryRecord& record);

  const EntryRecord& record() const noexcept { return *record_; }
  const std::vector<DimSource>& dim_sources() const noexcept { return dim_sources_; }
  const std::vector<aotpack_value_info>& input_infos() const noexcept { return input_infos_; }
  const std::vector<aotpack_value_info>& output_infos() const noexcept { return output_infos_; }
  // Inputs as a module sees them, without data; sizes and strides are complete where the shape is static.
  const std::vector<aotpack_module_tensor>& input_templates() const noexcept { return input_templates_; }
  // Per input: bytes of the dense tensor, meaningful where the shape is static.
  const std::vector<size_t>& input_bytes() const noexcept { return input_bytes_; }
  bool is_static_input(size_t index) const noexcept { return static_inputs_[index] != 0; }

 private:
  void find_dim_sources();
  void make_templates();
  void make_infos(const std::vector<ValueRecord>& values, std::vector<aotpack_value_info>* out);

  const EntryRecord* record_;
  std::vector<DimSource> dim_sources_;
  std::vector<std::vector<aotpack_dim_info>> dim_infos_;  // what the value infos point to
  std::vector<aotpack_value_info> input_infos_;
  std::vector<aotpack_value_info> output_infos_;
  std::vector<aotpack_module_tensor> input_templates_;
  std::vector<size_t> input_bytes_;
  std::vector<uint8_t> static_inputs_;
};

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_PLAN_H_
