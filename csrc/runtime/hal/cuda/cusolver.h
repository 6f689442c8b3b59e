// Linear algebra by cuSOLVER.
#pragma once

#include <cstdint>

#include "hal/cuda/library_work.h"

namespace aotpack::runtime::cuda {

struct CusolverLibrary;

// The handle of one stream. Belongs to one thread at a time.
class LinearAlgebra {
 public:
  // NULL where the host has no cuSOLVER of versions 11 and 12 (of CUDA 12 and 13).
  static const CusolverLibrary* library();
  static bool takes(int32_t dtype) noexcept { return is_precise(dtype); }

  explicit LinearAlgebra(const CusolverLibrary& library);
  ~LinearAlgebra();
  LinearAlgebra(const LinearAlgebra&) = delete;
  LinearAlgebra& operator=(const LinearAlgebra&) = delete;

  // Operations as docs/abi.md has them. False where cuSOLVER does not take the matrices, or where there are so many
  // small ones that one after the other is slow. Throws DEVICE_FAILED or OUT_OF_MEMORY.
  bool cholesky(const aotpack_module_library_call& call, LibraryWork& work);
  bool lu_factor(const aotpack_module_library_call& call, LibraryWork& work);
  bool lu_solve(const aotpack_module_library_call& call, LibraryWork& work);
  bool lu_inverse(const aotpack_module_library_call& call, LibraryWork& work);
  bool eigh(const aotpack_module_library_call& call, LibraryWork& work);
  bool qr(const aotpack_module_library_call& call, LibraryWork& work);

 private:
  bool begin(const aotpack_module_tensor& matrices, LibraryWork& work);
  void check(int status, const char* function) const;

  const CusolverLibrary& library_;
  void* handle_ = nullptr;  // NULL: none could be made
};

}  // namespace aotpack::runtime::cuda
