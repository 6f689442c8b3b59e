// Fourier transforms by cuFFT.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "hal/cuda/library_work.h"
#include "hal/cuda/plan_cache.h"

namespace aotpack::runtime::cuda {

struct CufftLibrary;

// The plans of one stream. Belongs to one thread at a time.
class FourierTransforms {
 public:
  // NULL where the host has no cuFFT of versions 11 and 12 (of CUDA 12 and 13).
  static const CufftLibrary* library();
  static bool takes(int32_t dtype) noexcept { return is_precise(dtype); }

  explicit FourierTransforms(const CufftLibrary& library);
  ~FourierTransforms();
  FourierTransforms(const FourierTransforms&) = delete;
  FourierTransforms& operator=(const FourierTransforms&) = delete;

  // Operations as docs/abi.md has them. False where cuFFT makes no plan for the sizes. Throws DEVICE_FAILED or
  // OUT_OF_MEMORY.
  bool c2c(const aotpack_module_library_call& call, LibraryWork& work);
  bool r2c(const aotpack_module_library_call& call, LibraryWork& work);
  bool c2r(const aotpack_module_library_call& call, LibraryWork& work);

 private:
  using Tensor = aotpack_module_tensor;
  using Axes = std::vector<int32_t>;
  // Type, sizes of up to three axes, and how many transforms of them.
  using Key = std::array<int64_t, 5>;
  struct Plan;

  // NULL where cuFFT makes none. `sizes`: of the real or complex signal.
  Plan* find_plan(int type, const Tensor& sizes, const Axes& axes);
  std::unique_ptr<Plan> make_plan(const Key& key, size_t rank) const;
  void execute(int type, const Plan& plan, const Tensor& from, const Tensor& to, bool forward, LibraryWork& work);
  void check(int result, const char* function) const;
  // All axes; not scaled.
  bool transform(const Tensor& from, const Tensor& to, const Axes& axes, bool forward, LibraryWork& work);
  void clear_imaginary(const Tensor& half, int32_t axis, int64_t size, LibraryWork& work);

  const CufftLibrary& library_;
  PlanCache<Key, Plan> plans_;
};

}  // namespace aotpack::runtime::cuda
