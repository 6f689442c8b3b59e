#include "hal/cuda/strided.h"

#include <algorithm>
#include <cstdlib>

#include "hal/cuda/device.h"
#include "hal/cuda/kernel.h"

namespace aotpack::runtime::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr uint64_t kMaxBlocks = 1 << 16;
constexpr const char* kName = "aotpack_strided";

// Thread i copies the units i, i + (number of threads), ...: for each it splits the unit's number into indices, the
// last axis first. The parameter is a StridedCopy.
constexpr const char* kCode = R"(
.version 7.0
.target sm_80
.address_size 64

.visible .entry aotpack_strided(.param .align 8 .b8 copy[440])
{
  .reg .pred %p<5>;
  .reg .b16 %h<3>;
  .reg .b32 %r<9>;
  .reg .b64 %d<28>;

  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mov.u32 %r4, %nctaid.x;
  cvt.u64.u32 %d1, %r3;
  mul.wide.u32 %d2, %r1, %r2;
  add.u64 %d1, %d1, %d2;
  mul.wide.u32 %d3, %r4, %r2;
  ld.param.u64 %d4, [copy];
  ld.param.u64 %d5, [copy+8];
  ld.param.u64 %d6, [copy+16];
  ld.param.u32 %r5, [copy+24];
  ld.param.u32 %r6, [copy+28];
  cvt.u64.u32 %d7, %r6;
  mov.u64 %d8, copy;
  cvt.u64.u32 %d9, %r5;
  shl.b64 %d9, %d9, 3;
  add.u64 %d9, %d8, %d9;

NEXT:
  setp.ge.u64 %p1, %d1, %d6;
  @%p1 bra END;
  mov.u64 %d10, %d1;
  mov.u64 %d11, 0;
  mov.u64 %d12, 0;
  mov.u64 %d13, %d9;

AXIS:
  setp.eq.u64 %p2, %d13, %d8;
  @%p2 bra MOVE;
  sub.u64 %d13, %d13, 8;
  ld.param.u64 %d14, [%d13+32];
  ld.param.u64 %d15, [%d13+168];
  ld.param.u64 %d16, [%d13+304];
  div.u64 %d17, %d10, %d14;
  mul.lo.u64 %d18, %d17, %d14;
  sub.u64 %d18, %d10, %d18;
  mad.lo.u64 %d11, %d18, %d15, %d11;
  mad.lo.u64 %d12, %d18, %d16, %d12;
  mov.u64 %d10, %d17;
  bra AXIS;

MOVE:
  mad.lo.u64 %d19, %d11, %d7, %d4;
  mad.lo.u64 %d20, %d12, %d7, %d5;
  add.u64 %d1, %d1, %d3;
  setp.eq.u32 %p2, %r6, 4;
  @%p2 bra FOUR;
  setp.eq.u32 %p3, %r6, 2;
  @%p3 bra TWO;
  setp.eq.u32 %p4, %r6, 1;
  @%p4 bra ONE;
  ld.global.u64 %d21, [%d20];
  st.global.u64 [%d19], %d21;
  bra NEXT;

FOUR:
  ld.global.u32 %r7, [%d20];
  st.global.u32 [%d19], %r7;
  bra NEXT;

TWO:
  ld.global.u16 %h1, [%d20];
  st.global.u16 [%d19], %h1;
  bra NEXT;

ONE:
  ld.global.u8 %h2, [%d20];
  st.global.u8 [%d19], %h2;
  bra NEXT;

END:
  ret;
}
)";

static_assert(sizeof(StridedCopy) == 440);
static_assert(offsetof(StridedCopy, to) == 0 && offsetof(StridedCopy, from) == 8 && offsetof(StridedCopy, count) == 16);
static_assert(offsetof(StridedCopy, rank) == 24 && offsetof(StridedCopy, unit) == 28);
static_assert(offsetof(StridedCopy, sizes) == 32 && offsetof(StridedCopy, to_strides) == 168);
static_assert(offsetof(StridedCopy, from_strides) == 304);

struct Axis {
  int64_t size;
  int64_t to;
  int64_t from;
};

}  // namespace

StridedCopy plan_strided_copy(void* to, const int64_t* to_strides, const void* from, const int64_t* from_strides,
                              const int64_t* sizes, int32_t rank, size_t item) noexcept {
  StridedCopy copy;
  copy.to = reinterpret_cast<Address>(to);
  copy.from = reinterpret_cast<Address>(from);
  const auto bits = static_cast<size_t>(copy.to | copy.from | item);
  const size_t unit = std::min<size_t>(bits & -bits, 8);
  const auto units = static_cast<int64_t>(item / unit);
  copy.unit = static_cast<uint32_t>(unit);
  Axis axes[StridedCopy::kMaxRank];
  int32_t count = 0;
  for (int32_t axis = 0; axis < rank; ++axis) {
    copy.count *= static_cast<uint64_t>(sizes[axis]);
    if (sizes[axis] != 1) axes[count++] = {sizes[axis], to_strides[axis] * units, from_strides[axis] * units};
  }
  if (units > 1) axes[count++] = {units, 1, 1};
  copy.count *= static_cast<uint64_t>(units);
  if (copy.count == 0) return copy;
  std::stable_sort(axes, axes + count,
                   [](const Axis& a, const Axis& b) { return std::llabs(a.to) > std::llabs(b.to); });
  int32_t kept = 0;
  for (int32_t axis = 0; axis < count; ++axis) {
    Axis& last = axes[kept > 0 ? kept - 1 : 0];
    const Axis& next = axes[axis];
    if (kept > 0 && last.to == next.to * next.size && last.from == next.from * next.size) {
      last = {last.size * next.size, next.to, next.from};
    } else {
      axes[kept++] = next;
    }
  }
  copy.rank = static_cast<uint32_t>(kept);
  for (int32_t axis = 0; axis < kept; ++axis) {
    copy.sizes[axis] = axes[axis].size;
    copy.to_strides[axis] = axes[axis].to;
    copy.from_strides[axis] = axes[axis].from;
  }
  return copy;
}

StridedKernels::StridedKernels() = default;
StridedKernels::~StridedKernels() = default;

void StridedKernels::launch(CudaDevice& device, const StridedCopy& copy, StreamHandle stream) {
  {
    const std::lock_guard lock(mutex_);
    if (kernel_ == nullptr) kernel_ = std::make_unique<Kernel>(device, "the kernel of strided copies", kCode);
  }
  const KernelHandle kernel = kernel_->get(kName, 0);
  void* arguments[] = {const_cast<StridedCopy*>(&copy)};
  const auto blocks = static_cast<unsigned>(std::min((copy.count + kThreads - 1) / kThreads, kMaxBlocks));
  device.check(device.driver().cuLaunchKernel(kernel, blocks, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr),
               "launching a strided copy");
}

}  // namespace aotpack::runtime::cuda
