#include "hal/cuda/library_kernels.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "hal/cuda/kernel.h"

namespace aotpack::runtime::cuda {
namespace {

constexpr unsigned kLibraryThreads = 256;
constexpr int64_t kMostLibraryBlocks = 1 << 16;

// Thread i of both kernels has the elements i, i + (number of threads), ...

// Numbers of 4 bytes if `single` is 1, otherwise of 8.
constexpr const char* kScale = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry aotpack_scale(
  .param .u64 data, .param .u64 count, .param .f64 factor, .param .u32 single)
{
  .reg .pred %p<3>;
  .reg .b32 %r<6>;
  .reg .b64 %d<8>;
  .reg .f32 %f<3>;
  .reg .f64 %g<3>;

  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  cvt.u64.u32 %d1, %r3;
  mul.wide.u32 %d2, %r1, %r2;
  add.u64 %d1, %d1, %d2;
  mul.wide.u32 %d3, %r4, %r2;
  ld.param.u64 %d4, [data];
  ld.param.u64 %d5, [count];
  ld.param.f64 %g1, [factor];
  ld.param.u32 %r5, [single];
  cvt.rn.f32.f64 %f1, %g1;
  setp.eq.u32 %p2, %r5, 1;

NEXT:
  setp.ge.u64 %p1, %d1, %d5;
  @%p1 bra END;
  @%p2 bra SINGLE;
  shl.b64 %d6, %d1, 3;
  add.u64 %d6, %d6, %d4;
  ld.global.f64 %g2, [%d6];
  mul.f64 %g2, %g2, %g1;
  st.global.f64 [%d6], %g2;
  add.u64 %d1, %d1, %d3;
  bra NEXT;

SINGLE:
  shl.b64 %d6, %d1, 2;
  add.u64 %d6, %d6, %d4;
  ld.global.f32 %f2, [%d6];
  mul.f32 %f2, %f2, %f1;
  st.global.f32 [%d6], %f2;
  add.u64 %d1, %d1, %d3;
  bra NEXT;

END:
  ret;
}
)";

// Of element i, `row` is i mod rows and `column` i / rows mod columns. It is cleared, 4 bytes at a time, where row <
// column, or where row > column if `upper` is 1.
constexpr const char* kTriangle = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry aotpack_triangle(
  .param .u64 data, .param .u64 count, .param .u64 rows, .param .u64 columns, .param .u32 words, .param .u32 upper)
{
  .reg .pred %p<5>;
  .reg .b32 %r<9>;
  .reg .b64 %d<13>;

  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  cvt.u64.u32 %d1, %r3;
  mul.wide.u32 %d2, %r1, %r2;
  add.u64 %d1, %d1, %d2;
  mul.wide.u32 %d3, %r4, %r2;
  ld.param.u64 %d4, [data];
  ld.param.u64 %d5, [count];
  ld.param.u64 %d6, [rows];
  ld.param.u64 %d12, [columns];
  ld.param.u32 %r5, [words];
  ld.param.u32 %r6, [upper];
  setp.eq.u32 %p2, %r6, 1;
  mov.u32 %r7, 0;

NEXT:
  setp.ge.u64 %p1, %d1, %d5;
  @%p1 bra END;
  div.u64 %d7, %d1, %d6;
  rem.u64 %d8, %d1, %d6;
  rem.u64 %d9, %d7, %d12;
  mov.u64 %d10, %d1;
  add.u64 %d1, %d1, %d3;
  @%p2 bra UPPER;
  setp.ge.u64 %p3, %d8, %d9;
  @%p3 bra NEXT;
  bra CLEAR;

UPPER:
  setp.le.u64 %p3, %d8, %d9;
  @%p3 bra NEXT;

CLEAR:
  cvt.u64.u32 %d11, %r5;
  mul.lo.u64 %d10, %d10, %d11;
  shl.b64 %d10, %d10, 2;
  add.u64 %d10, %d10, %d4;
  mov.u32 %r8, %r5;

WORD:
  st.global.u32 [%d10], %r7;
  add.u64 %d10, %d10, 4;
  sub.u32 %r8, %r8, 1;
  setp.ne.u32 %p4, %r8, 0;
  @%p4 bra WORD;
  bra NEXT;

END:
  ret;
}
)";

// Compiled by the driver at their first use on a device, and kept like the device. Thread-safe.
KernelHandle kernel_of(CudaDevice& device, const char* name, const char* code) {
  static std::mutex& mutex = *new std::mutex;
  static auto& kernels = *new std::map<std::pair<CudaDevice*, const char*>, std::unique_ptr<Kernel>>;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Kernel>& kernel = kernels[{&device, code}];
  if (kernel == nullptr) kernel = std::make_unique<Kernel>(device, std::string("the kernel '") + name + "'", code);
  return kernel->get(name, 0);
}

void launch_kernel(const LibraryWork& work, const char* name, const char* code, int64_t count, void** arguments) {
  if (count == 0) return;
  const KernelHandle kernel = kernel_of(work.device(), name, code);
  const auto blocks =
      static_cast<unsigned>(std::min((count + kLibraryThreads - 1) / kLibraryThreads, kMostLibraryBlocks));
  work.device().check(work.device().driver().cuLaunchKernel(kernel, blocks, 1, 1, kLibraryThreads, 1, 1, 0,
                                                            work.stream().busy(), arguments, nullptr),
                      name);
}

}  // namespace

void scale(const LibraryWork& work, void* data, int64_t count, size_t item, double factor) {
  uint32_t single = item == sizeof(float) ? 1 : 0;
  void* arguments[] = {&data, &count, &factor, &single};
  launch_kernel(work, "aotpack_scale", kScale, count, arguments);
}

void clear_triangle(const LibraryWork& work, void* data, int64_t batch, int64_t rows, int64_t columns, size_t item,
                    bool upper) {
  int64_t count = batch * rows * columns;
  auto words = static_cast<uint32_t>(item / 4);
  uint32_t kept = upper ? 1 : 0;
  void* arguments[] = {&data, &count, &rows, &columns, &words, &kept};
  launch_kernel(work, "aotpack_triangle", kTriangle, count, arguments);
}

}  // namespace aotpack::runtime::cuda
