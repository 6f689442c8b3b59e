// Matrix products by cuBLASLt.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "hal/cuda/library_work.h"
#include "hal/cuda/plan_cache.h"

namespace aotpack::runtime::cuda {

struct CublasLtLibrary;

// The handle and the plans of one stream. Belongs to one thread at a time.
class MatrixProducts {
 public:
  // NULL where the host has no cuBLASLt of versions 12 and 13 (of CUDA 12 and 13).
  static const CublasLtLibrary* library();
  static bool takes(int32_t dtype) noexcept;

  explicit MatrixProducts(const CublasLtLibrary& library);
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  // The operation as docs/abi.md has it. False where cuBLASLt has no kernel for the sizes, strides and addresses.
  // Throws DEVICE_FAILED or OUT_OF_MEMORY.
  bool product(const aotpack_module_library_call& call, LibraryWork& work);

 private:
  // What a plan depends on: see product().
  using Key = std::array<int64_t, 15>;
  struct Plan;

  // NULL where cuBLASLt has none.
  std::unique_ptr<Plan> make_plan(const Key& key, const void* bias) const;
  void check(int status, const char* function) const;

  const CublasLtLibrary& library_;
  void* handle_ = nullptr;  // NULL: none could be made
  PlanCache<Key, Plan> plans_;
};

}  // namespace aotpack::runtime::cuda
