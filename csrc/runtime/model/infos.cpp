#include "model/infos.h"

#include <cstdint>

namespace aotpack::runtime {
namespace {

aotpack_dim_info dim_info(const EntryRecord& record, const SizeRecord& size) {
  aotpack_dim_info info = {};
  info.struct_size = sizeof info;
  info.multiple_of = 1;
  switch (size.kind) {
    case SizeRecord::Kind::kStatic:
      info.size = info.min = info.max = size.size;
      break;
    case SizeRecord::Kind::kDim: {
      const DimRecord& dim = record.dims[size.dim];
      info.name = dim.name.c_str();
      info.size = -1;
      info.multiplier = size.mul;
      info.offset = size.add;
      info.min = dim.min;
      info.max = dim.max;
      info.multiple_of = dim.multiple_of;
      break;
    }
    case SizeRecord::Kind::kCode:
    case SizeRecord::Kind::kData:
      info.name = "";
      info.size = -1;
      info.max = INT64_MAX;
      info.expression = size.text.c_str();
      break;
  }
  return info;
}

}  // namespace

EntryInfos::EntryInfos(const EntryRecord& record, DLDevice device) {
  add(record, record.inputs, device, &inputs_);
  add(record, record.outputs, device, &outputs_);
  if (!record.backward.has_value()) return;
  const BackwardRecord& backward = *record.backward;
  has_backward_ = true;
  backward_ = {sizeof backward_, backward.entry, backward.num_results, backward.gradients.size(),
               backward.gradients.data()};
}

void EntryInfos::add(const EntryRecord& record, const std::vector<ValueRecord>& values, DLDevice device,
                     std::vector<aotpack_value_info>* out) {
  for (const ValueRecord& value : values) {
    std::vector<const aotpack_dim_info*>& dims = dim_lists_.emplace_back();
    for (const SizeRecord& size : value.shape) dims.push_back(&dims_.emplace_back(dim_info(record, size)));
    aotpack_value_info info = {};
    info.struct_size = sizeof info;
    info.name = value.name.c_str();
    info.dtype = value.dtype->dlpack;
    info.rank = static_cast<int32_t>(value.shape.size());
    info.dims = dims.data();
    info.mutated = value.mutated;
    info.number = value.number;
    info.device = value.device == kHostDevice ? DLDevice{kDLCPU, 0} : device;
    out->push_back(info);
  }
}

}  // namespace aotpack::runtime
