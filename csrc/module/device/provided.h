// Work of a module that libraries of the device's vendor do, where the host has them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tensor.h"

namespace aotpack::module {

using LibraryTensor = aotpack_module_tensor;
LibraryTensor view_of(const Tensor& tensor);

// Whether the runtime has submitted the operation (docs/abi.md) to a library. If not, what the last tensors contain is
// undefined. All are tensors of the device. Throws ImportFailure.
bool provide(const char* operation, const std::vector<LibraryTensor>& tensors, const std::vector<int64_t>& numbers);
bool provide(const char* operation, std::initializer_list<const Tensor*> tensors, const std::vector<int64_t>& numbers);

}  // namespace aotpack::module
