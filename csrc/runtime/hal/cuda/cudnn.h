// Convolutions by cuDNN.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "hal/cuda/library_work.h"
#include "hal/cuda/plan_cache.h"

namespace aotpack::runtime::cuda {

struct CudnnLibrary;

// The handle and the plans of one stream. Belongs to one thread at a time.
class Convolutions {
 public:
  // NULL where the host has no cuDNN of versions 8 and 9.
  static const CudnnLibrary* library();
  static bool takes(int32_t dtype) noexcept;

  explicit Convolutions(const CudnnLibrary& library);
  ~Convolutions();
  Convolutions(const Convolutions&) = delete;
  Convolutions& operator=(const Convolutions&) = delete;

  // The operation as docs/abi.md has it. False where channels are not innermost in memory, or where cuDNN has no
  // algorithm. Throws DEVICE_FAILED or OUT_OF_MEMORY.
  bool convolution(const aotpack_module_library_call& call, LibraryWork& work);

 private:
  // The dtype, the sizes of input, weight and result, and the numbers of the operation.
  using Key = std::array<int64_t, 31>;
  struct Plan;

  // NULL where cuDNN has none.
  std::unique_ptr<Plan> make_plan(const Key& key, const aotpack_module_library_call& call) const;
  int execute(const Plan& plan, const aotpack_module_library_call& call, const void* weight, LibraryWork& work) const;
  void check(int status, const char* function) const;

  const CudnnLibrary& library_;
  void* handle_ = nullptr;  // NULL: none could be made
  PlanCache<Key, Plan> plans_;
};

}  // namespace aotpack::runtime::cuda
