#include "hal/cuda/providers.h"

#include <string_view>

namespace aotpack::runtime::cuda {
namespace {

template <typename Library>
struct Operation {
  std::string_view name;
  bool (Library::*run)(const aotpack_module_library_call&, LibraryWork&);
};
constexpr Operation<FourierTransforms> kFourier[] = {
    {"fft_c2c", &FourierTransforms::c2c},
    {"fft_r2c", &FourierTransforms::r2c},
    {"fft_c2r", &FourierTransforms::c2r},
};
constexpr Operation<LinearAlgebra> kLinear[] = {
    {"cholesky", &LinearAlgebra::cholesky}, {"lu_factor", &LinearAlgebra::lu_factor},
    {"lu_solve", &LinearAlgebra::lu_solve}, {"lu_inverse", &LinearAlgebra::lu_inverse},
    {"eigh", &LinearAlgebra::eigh},         {"qr", &LinearAlgebra::qr},
};
constexpr Operation<MatrixProducts> kProducts[] = {{"product", &MatrixProducts::product}};
constexpr Operation<Convolutions> kConvolutions[] = {{"convolution", &Convolutions::convolution}};

// Libraries are not asked about tensors without elements, or of other dtypes.
template <typename Library>
bool is_plain(const aotpack_module_library_call& call) {
  return std::all_of(call.tensors, call.tensors + call.num_tensors, [](const aotpack_module_tensor& tensor) {
    return Library::takes(tensor.dtype) && element_count(tensor) != 0;
  });
}

template <typename Library, size_t N>
const Operation<Library>* find(const Operation<Library> (&operations)[N], std::string_view name) {
  const auto* known = std::find_if(operations, operations + N,
                                   [&](const Operation<Library>& operation) { return operation.name == name; });
  return known == operations + N ? nullptr : known;
}

template <typename Library, size_t N>
bool can_run_one_of(const Operation<Library> (&operations)[N], std::string_view name) {
  return find(operations, name) != nullptr && Library::library() != nullptr;
}

// Whether one of a library's operations did it; `made` is the library's state, which is made at the first.
template <typename Library, size_t N>
bool run_one_of(const Operation<Library> (&operations)[N], std::unique_ptr<Library>* made,
                const aotpack_module_library_call& call, LibraryWork& work) {
  const auto* known = find(operations, call.operation);
  if (known == nullptr || !is_plain<Library>(call)) return false;
  const auto* library = Library::library();
  if (library == nullptr) return false;
  if (*made == nullptr) *made = std::make_unique<Library>(*library);
  return (made->get()->*known->run)(call, work);
}

}  // namespace

bool Providers::can_run(std::string_view operation) {
  return can_run_one_of(kFourier, operation) || can_run_one_of(kLinear, operation) ||
         can_run_one_of(kProducts, operation) || can_run_one_of(kConvolutions, operation);
}

bool Providers::run(const aotpack_module_library_call& call, LibraryWork& work) {
  return run_one_of(kFourier, &transforms_, call, work) || run_one_of(kLinear, &algebra_, call, work) ||
         run_one_of(kProducts, &products_, call, work) || run_one_of(kConvolutions, &convolutions_, call, work);
}

}  // namespace aotpack::runtime::cuda
