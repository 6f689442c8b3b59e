#include "device/provided.h"

#include <algorithm>

#include "imports.h"

namespace aotpack::module {

LibraryTensor view_of(const Tensor& tensor) {
  LibraryTensor view = {};
  view.data = tensor.data;
  view.dtype = tensor.dtype;
  view.rank = tensor.rank;
  std::copy_n(tensor.sizes, tensor.rank, view.sizes);
  std::copy_n(tensor.strides, tensor.rank, view.strides);
  return view;
}

bool provide(const char* operation, std::initializer_list<const Tensor*> tensors, const std::vector<int64_t>& numbers) {
  std::vector<LibraryTensor> views;
  for (const Tensor* tensor : tensors) views.push_back(view_of(*tensor));
  return provide(operation, views, numbers);
}

bool provide(const char* operation, const std::vector<LibraryTensor>& tensors, const std::vector<int64_t>& numbers) {
  aotpack_module_library_call work = {};
  work.struct_size = sizeof(work);
  work.operation = operation;
  work.tensors = tensors.data();
  work.numbers = numbers.data();
  work.num_tensors = static_cast<uint32_t>(tensors.size());
  work.num_numbers = static_cast<uint32_t>(numbers.size());
  const aotpack_module_call& call = Call::current().arguments();
  uint32_t is_done = 0;
  const auto function = reinterpret_cast<aotpack_import_provide_fn>(call.imports[import_provide]);
  const int32_t code = function(call.runtime, &work, &is_done);
  if (code != AOTPACK_MODULE_OK) throw ImportFailure{code};
  return is_done != 0;
}

}  // namespace aotpack::module
