#include "hal/cuda/cufft.h"

#include <cmath>

#include "hal/cuda/library_kernels.h"
#include "hal/cuda/vendor_library.h"

namespace aotpack::runtime::cuda {
namespace {

// cufftType
constexpr int kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29;
constexpr int kDouble = 0x40;  // added to these
// Directions.
constexpr int kForward = -1, kInverse = 1;
// Axes of one transform.
constexpr size_t kMostAxes = 3;
// Memory of transforms starts at multiples of this.
constexpr uintptr_t kAlignment = 16;

#define AOTPACK_CUFFT_FUNCTIONS(X)                                                                                     \
  X(cufftGetVersion, (int* out))                                                                                       \
  X(cufftCreate, (int* out_plan))                                                                                      \
  X(cufftSetAutoAllocation, (int plan, int is_automatic))                                                              \
  X(cufftMakePlanMany64,                                                                                               \
    (int plan, int rank, long long* sizes, long long* in_sizes, long long in_stride, long long in_distance,            \
     long long* out_sizes, long long out_stride, long long out_distance, int type, long long batch, size_t* out_work)) \
  X(cufftSetWorkArea, (int plan, void* work))                                                                          \
  X(cufftSetStream, (int plan, StreamHandle stream))                                                                   \
  X(cufftExecC2C, (int plan, void* from, void* to, int direction))                                                     \
  X(cufftExecZ2Z, (int plan, void* from, void* to, int direction))                                                     \
  X(cufftExecR2C, (int plan, void* from, void* to))                                                                    \
  X(cufftExecD2Z, (int plan, void* from, void* to))                                                                    \
  X(cufftExecC2R, (int plan, void* from, void* to))                                                                    \
  X(cufftExecZ2D, (int plan, void* from, void* to))                                                                    \
  X(cufftDestroy, (int plan))

const char* result_name(int result) {
  constexpr const char* kNames[] = {"SUCCESS",        "INVALID_PLAN", "ALLOC_FAILED", "INVALID_TYPE", "INVALID_VALUE",
                                    "INTERNAL_ERROR", "EXEC_FAILED",  "SETUP_FAILED", "INVALID_SIZE", "UNALIGNED_DATA"};
  return result >= 0 && static_cast<size_t>(result) < std::size(kNames) ? kNames[result] : "unknown error";
}

bool is_double(const aotpack_module_tensor& tensor) {
  return tensor.dtype == AOTPACK_DTYPE_FLOAT64 || tensor.dtype == AOTPACK_DTYPE_COMPLEX128;
}
bool is_complex(const aotpack_module_tensor& tensor) {
  return tensor.dtype == AOTPACK_DTYPE_COMPLEX64 || tensor.dtype == AOTPACK_DTYPE_COMPLEX128;
}
size_t real_item(const aotpack_module_tensor& tensor) { return is_double(tensor) ? sizeof(double) : sizeof(float); }

// All axes, with `inner` innermost, in their order.
std::vector<int32_t> order_with(const aotpack_module_tensor& tensor, const std::vector<int32_t>& inner) {
  std::vector<int32_t> order;
  for (int32_t axis = 0; axis < tensor.rank; ++axis) {
    if (std::find(inner.begin(), inner.end(), axis) == inner.end()) order.push_back(axis);
  }
  order.insert(order.end(), inner.begin(), inner.end());
  return order;
}

// Whether cuFFT can use the tensor in place: dense in that order, and aligned.
bool lies_in(const aotpack_module_tensor& tensor, const std::vector<int32_t>& order) {
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int32_t axis = order[i];
    if (tensor.sizes[axis] != 1 && tensor.strides[axis] != step) return false;
    step *= tensor.sizes[axis];
  }
  return reinterpret_cast<uintptr_t>(tensor.data) % kAlignment == 0;
}

// By 1, by the root of the number of points, or by the number of points.
double factor_of(int64_t normalization, const aotpack_module_tensor& signal, const std::vector<int32_t>& axes) {
  double points = 1;
  for (const int32_t axis : axes) points *= static_cast<double>(signal.sizes[axis]);
  return normalization == 0 ? 1 : normalization == 1 ? 1 / std::sqrt(points) : 1 / points;
}

void normalize(int64_t normalization, const aotpack_module_tensor& signal, const std::vector<int32_t>& axes,
               const aotpack_module_tensor& result, const LibraryWork& work) {
  const double factor = factor_of(normalization, signal, axes);
  if (factor == 1) return;
  scale(work, result.data, element_count(result) * (is_complex(result) ? 2 : 1), real_item(result), factor);
}

}  // namespace

struct CufftLibrary {
#define AOTPACK_MEMBER(symbol, parameters) int(*symbol) parameters = nullptr;
  AOTPACK_CUFFT_FUNCTIONS(AOTPACK_MEMBER)
#undef AOTPACK_MEMBER
  int version = 0;

  bool load() {
    void* handle = open_library({"libcufft.so.12", "libcufft.so.11"});
    if (handle == nullptr) return false;
    bool is_whole = true;
#define AOTPACK_FIND(symbol, parameters) is_whole = find_function(handle, #symbol, &this->symbol) && is_whole;
    AOTPACK_CUFFT_FUNCTIONS(AOTPACK_FIND)
#undef AOTPACK_FIND
    return is_whole && cufftGetVersion(&version) == 0 && version >= 11000 && version < 13000;
  }
};

const CufftLibrary* FourierTransforms::library() {
  // Never destroyed: contexts may be released while the process ends.
  static CufftLibrary& known = *new CufftLibrary;
  static const bool is_usable = known.load();
  return is_usable ? &known : nullptr;
}

struct FourierTransforms::Plan {
  explicit Plan(const CufftLibrary& owner) : library(owner) {}
  ~Plan() { library.cufftDestroy(handle); }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const CufftLibrary& library;
  int handle = 0;
  size_t work_bytes = 0;
};

FourierTransforms::FourierTransforms(const CufftLibrary& library) : library_(library) {}
FourierTransforms::~FourierTransforms() = default;

void FourierTransforms::check(int result, const char* function) const {
  if (result == 0) return;
  fail(AOTPACK_DEVICE_FAILED, "cuFFT %d.%d: %s fails with CUFFT_%s (%d)", library_.version / 1000,
       library_.version % 1000 / 100, function, result_name(result), result);
}

std::unique_ptr<FourierTransforms::Plan> FourierTransforms::make_plan(const Key& key, size_t rank) const {
  int handle = 0;
  if (library_.cufftCreate(&handle) != 0) return nullptr;
  auto plan = std::make_unique<Plan>(library_);
  plan->handle = handle;
  long long sizes[kMostAxes];
  std::copy_n(key.begin() + 1, rank, sizes);
  if (library_.cufftSetAutoAllocation(handle, 0) != 0 ||
      library_.cufftMakePlanMany64(handle, static_cast<int>(rank), sizes, nullptr, 1, 0, nullptr, 1, 0,
                                   static_cast<int>(key[0]), key[4], &plan->work_bytes) != 0) {
    return nullptr;
  }
  return plan;
}

FourierTransforms::Plan* FourierTransforms::find_plan(int type, const Tensor& sizes, const Axes& axes) {
  Key key{type, 0, 0, 0, element_count(sizes)};
  for (size_t i = 0; i < axes.size(); ++i) {
    key[i + 1] = sizes.sizes[axes[i]];
    key[4] /= key[i + 1];
  }
  return plans_.find(key, [&] { return make_plan(key, axes.size()); });
}

void FourierTransforms::execute(int type, const Plan& plan, const Tensor& from, const Tensor& to, bool forward,
                                LibraryWork& work) {
  const int direction = forward ? kForward : kInverse;
  check(library_.cufftSetStream(plan.handle, work.stream().busy()), "cufftSetStream");
  check(library_.cufftSetWorkArea(plan.handle, work.take(plan.work_bytes)), "cufftSetWorkArea");
  switch (type) {
    case kC2C:
      return check(library_.cufftExecC2C(plan.handle, from.data, to.data, direction), "cufftExecC2C");
    case kC2C + kDouble:
      return check(library_.cufftExecZ2Z(plan.handle, from.data, to.data, direction), "cufftExecZ2Z");
    case kR2C:
      return check(library_.cufftExecR2C(plan.handle, from.data, to.data), "cufftExecR2C");
    case kR2C + kDouble:
      return check(library_.cufftExecD2Z(plan.handle, from.data, to.data), "cufftExecD2Z");
    case kC2R:
      return check(library_.cufftExecC2R(plan.handle, from.data, to.data), "cufftExecC2R");
    default:
      return check(library_.cufftExecZ2D(plan.handle, from.data, to.data), "cufftExecZ2D");
  }
}

// Three axes at a time, the last ones first.
bool FourierTransforms::transform(const Tensor& from, const Tensor& to, const Axes& axes, bool forward,
                                  LibraryWork& work) {
  const int type = kC2C + (is_double(from) ? kDouble : 0);
  Tensor source = from;
  bool is_own = false;
  for (size_t end = axes.size(); end > 0;) {
    const size_t begin = end - std::min(end, kMostAxes);
    const Axes some(axes.begin() + static_cast<int64_t>(begin), axes.begin() + static_cast<int64_t>(end));
    const Plan* plan = find_plan(type, source, some);
    if (plan == nullptr) return false;
    const Axes order = order_with(source, some);
    if (!lies_in(source, order)) {
      const Tensor arranged = work.make(source, order);
      work.copy(arranged, source);
      source = arranged;
      is_own = true;
    }
    const bool is_direct = begin == 0 && lies_in(to, order);
    const Tensor result = is_direct ? to : is_own ? source : work.make(source, order);
    execute(type, *plan, source, result, forward, work);
    source = result;
    is_own = true;
    if (begin == 0 && !is_direct) work.copy(to, source);
    end = begin;
  }
  return true;
}

bool FourierTransforms::c2c(const aotpack_module_library_call& call, LibraryWork& work) {
  const Axes axes(call.numbers + 2, call.numbers + call.num_numbers);
  const Tensor &from = call.tensors[0], &to = call.tensors[1];
  if (!transform(from, to, axes, call.numbers[0] != 0, work)) return false;
  normalize(call.numbers[1], from, axes, to, work);
  return true;
}

bool FourierTransforms::r2c(const aotpack_module_library_call& call, LibraryWork& work) {
  const Axes axes(call.numbers + 2, call.numbers + call.num_numbers);
  const Tensor &from = call.tensors[0], &to = call.tensors[1];
  if (call.numbers[0] == 0) {
    // Both halves of the spectrum: of complex numbers without imaginary parts.
    Tensor like = to;
    const Tensor complex = work.make(like, order_with(like, axes));
    const auto count = static_cast<size_t>(element_count(complex));
    work.stream().fill(complex.data, 0, 1, count * library_item(complex.dtype));
    Tensor reals = complex;
    reals.dtype = from.dtype;
    for (int32_t axis = 0; axis < reals.rank; ++axis) reals.strides[axis] *= 2;
    work.copy(reals, from);
    if (!transform(complex, to, axes, true, work)) return false;
  } else {
    const int type = kR2C + (is_double(from) ? kDouble : 0);
    const size_t begin = axes.size() - std::min(axes.size(), kMostAxes);
    const Axes first(axes.begin(), axes.begin() + static_cast<int64_t>(begin));
    const Axes last(axes.begin() + static_cast<int64_t>(begin), axes.end());
    const Plan* plan = find_plan(type, from, last);
    if (plan == nullptr) return false;
    const Axes order = order_with(from, last);
    Tensor source = from;
    if (!lies_in(source, order)) {
      source = work.make(from, order);
      work.copy(source, from);
    }
    const bool is_direct = first.empty() && lies_in(to, order);
    const Tensor spectrum = is_direct ? to : work.make(to, order);
    execute(type, *plan, source, spectrum, true, work);
    if (!first.empty()) {
      if (!transform(spectrum, to, first, true, work)) return false;
    } else if (!is_direct) {
      work.copy(to, spectrum);
    }
  }
  normalize(call.numbers[1], from, axes, to, work);
  return true;
}

// The first coefficient of a real signal has no imaginary part, nor has the last one of an even size. torch does not
// read them, and what cuFFT does with them is not defined. The axis is the innermost one.
void FourierTransforms::clear_imaginary(const Tensor& half, int32_t axis, int64_t size, LibraryWork& work) {
  const size_t item = real_item(half);
  const auto lines = static_cast<size_t>(element_count(half) / half.sizes[axis]);
  const size_t pitch = static_cast<size_t>(half.sizes[axis]) * 2 * item;
  const auto clear = [&](int64_t coefficient) {
    const Address at = reinterpret_cast<Address>(half.data) + (2 * static_cast<size_t>(coefficient) + 1) * item;
    const Driver& driver = work.device().driver();
    work.device().check(driver.cuMemsetD2D32Async(at, pitch, 0, item / 4, lines, work.stream().busy()), "a fill");
  };
  clear(0);
  if (size % 2 == 0) clear(size / 2);
}

bool FourierTransforms::c2r(const aotpack_module_library_call& call, LibraryWork& work) {
  const Axes axes(call.numbers + 1, call.numbers + call.num_numbers);
  const Tensor &from = call.tensors[0], &to = call.tensors[1];
  const Axes last{axes.back()}, others(axes.begin(), axes.end() - 1);
  const int type = kC2R + (is_double(from) ? kDouble : 0);
  const Plan* plan = find_plan(type, to, last);
  if (plan == nullptr) return false;
  // It is overwritten.
  const Axes order = order_with(from, last);
  const Tensor half = work.make(from, order);
  if (others.empty()) {
    work.copy(half, from);
  } else if (!transform(from, half, others, false, work)) {
    return false;
  }
  // Making the plans of the others may have removed this one.
  plan = find_plan(type, to, last);
  if (plan == nullptr) return false;
  clear_imaginary(half, axes.back(), to.sizes[axes.back()], work);
  const bool is_direct = lies_in(to, order);
  const Tensor signal = is_direct ? to : work.make(to, order);
  execute(type, *plan, half, signal, false, work);
  if (!is_direct) work.copy(to, signal);
  normalize(call.numbers[0], to, axes, to, work);
  return true;
}

}  // namespace aotpack::runtime::cuda
