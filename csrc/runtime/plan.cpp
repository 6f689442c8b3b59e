#include "plan.h"

#include "status.h"
#include "strided.h"

namespace aotpack::runtime {

EntryPlan::EntryPlan(const EntryRecord& record) : record_(&record) {
  find_dim_sources();
  make_templates();
  make_infos(record.inputs, &input_infos_);
  make_infos(record.outputs, &output_infos_);
}

// The first plain use of a dim gives its value; a dim without one is solved for from its first use.
void EntryPlan::find_dim_sources() {
  dim_sources_.resize(record_->dims.size());
  std::vector<bool> plain(record_->dims.size());
  for (uint32_t input = 0; input < record_->inputs.size(); ++input) {
    const auto& shape = record_->inputs[input].shape;
    for (uint32_t axis = 0; axis < shape.size(); ++axis) {
      const SizeRecord& size = shape[axis];
      if (size.kind != SizeRecord::Kind::kDim || plain[size.dim]) continue;
      const bool is_plain = size.mul == 1 && size.add == 0;
      if (!is_plain && dim_sources_[size.dim].input != DimSource::kNone) continue;
      dim_sources_[size.dim] = {input, axis, size.mul, size.add};
      plain[size.dim] = is_plain;
    }
  }
}

void EntryPlan::make_templates() {
  for (const ValueRecord& value : record_->inputs) {
    aotpack_module_tensor tensor = {};
    tensor.dtype = value.dtype->module_code;
    tensor.rank = static_cast<int32_t>(value.shape.size());
    bool is_static = true;
    for (size_t axis = 0; axis < value.shape.size(); ++axis) {
      tensor.sizes[axis] = value.shape[axis].size;
      is_static = is_static && value.shape[axis].kind == SizeRecord::Kind::kStatic;
    }
    size_t bytes = 0;
    if (is_static &&
        !dense_strides(tensor.sizes, value.order.data(), tensor.rank, value.dtype->size, tensor.strides, &bytes)) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "input '%s' of entry '%s' is too large", value.name.c_str(),
           record_->name.c_str());
    }
    input_templates_.push_back(tensor);
    input_bytes_.push_back(bytes);
    static_inputs_.push_back(is_static ? 1 : 0);
  }
}

void EntryPlan::make_infos(const std::vector<ValueRecord>& values, std::vector<aotpack_value_info>* out) {
  for (const ValueRecord& value : values) {
    std::vector<aotpack_dim_info>& dims = dim_infos_.emplace_back();
    for (const SizeRecord& size : value.shape) {
      aotpack_dim_info info = {};
      switch (size.kind) {
        case SizeRecord::Kind::kStatic:
          info.size = info.min = info.max = size.size;
          break;
        case SizeRecord::Kind::kDim: {
          const DimRecord& dim = record_->dims[size.dim];
          info = {dim.name.c_str(), -1, size.mul, size.add, dim.min, dim.max};
          break;
        }
        case SizeRecord::Kind::kComputed:
          info.name = "";
          info.size = -1;
          info.max = INT64_MAX;
          break;
      }
      dims.push_back(info);
    }
    // The vectors of dims move as dim_infos_ grows, their elements do not.
    out->push_back({value.name.c_str(), value.dtype->dlpack, static_cast<int32_t>(value.shape.size()), dims.data(),
                    value.mutated});
  }
}

}  // namespace aotpack::runtime
