// What the C interface tells about values, weights and state.
#pragma once

#include <deque>
#include <vector>

#include "aotpack/aotpack.h"
#include "manifest/manifest.h"

namespace aotpack::runtime {

// The inputs and outputs of an entry. Immutable; refers to the record, which must outlive it and stay where it is.
class EntryInfos {
 public:
  // `device`: where the model runs.
  EntryInfos(const EntryRecord& record, DLDevice device);
  EntryInfos(EntryInfos&&) = default;
  EntryInfos& operator=(EntryInfos&&) = default;
  EntryInfos(const EntryInfos&) = delete;
  EntryInfos& operator=(const EntryInfos&) = delete;

  const std::vector<aotpack_value_info>& inputs() const noexcept { return inputs_; }
  const std::vector<aotpack_value_info>& outputs() const noexcept { return outputs_; }
  // NULL without one.
  const aotpack_backward_info* backward() const noexcept { return has_backward_ ? &backward_ : nullptr; }

 private:
  void add(const EntryRecord& record, const std::vector<ValueRecord>& values, DLDevice device,
           std::vector<aotpack_value_info>* out);

  // What the infos point to; the elements of a deque do not move.
  std::deque<aotpack_dim_info> dims_;
  std::deque<std::vector<const aotpack_dim_info*>> dim_lists_;
  std::vector<aotpack_value_info> inputs_;
  std::vector<aotpack_value_info> outputs_;
  aotpack_backward_info backward_{};
  bool has_backward_ = false;
};

// Of a WeightRecord or a ConstantRecord, which must outlive the info.
template <typename Record>
aotpack_weight_info weight_info(const Record& record, DLDevice device) {
  return {sizeof(aotpack_weight_info), record.name.c_str(),
          record.dtype->dlpack,        static_cast<int32_t>(record.shape.size()),
          record.shape.data(),         device};
}

}  // namespace aotpack::runtime
