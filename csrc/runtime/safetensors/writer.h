// Writes `.safetensors` files that replace their predecessors whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "safetensors/format.h"

namespace aotpack::runtime {

// What is to be written. Refers to names and shapes of the caller's.
struct TensorToStore {
  const std::string* name;
  const DType* dtype;
  const std::vector<int64_t>* shape;
};

// Writes a file, see NewFile. `value` returns the row-major bytes of tensor `index`, valid until it is called again;
// it is called once for each. Tensors of large elements come first, so that all are aligned: safetensors.torch reads no
// others. Throws INVALID_ARGUMENT for tensors that the format cannot hold, or what NewFile throws.
void write_safetensors(const std::string& path, const std::vector<TensorToStore>& tensors, const Metadata& metadata,
                       const std::function<const void*(size_t index)>& value);

}  // namespace aotpack::runtime
