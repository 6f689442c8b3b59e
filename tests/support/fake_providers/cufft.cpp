// cuFFT, as its sums are defined.
#include <cmath>
#include <complex>
#include <map>
#include <mutex>
#include <numbers>
#include <vector>

#include "queue.h"

using namespace fake_providers;

namespace {

constexpr size_t kWork = 192;
constexpr int kInvalidPlan = 1, kInvalidValue = 4, kExecFailed = 6, kInvalidSize = 8;

struct Plan {
  int type = 0;
  std::vector<long long> sizes;
  long long batch = 0;
  bool is_automatic = true;
  void* work = nullptr;
  void* stream = nullptr;
};

// Guarded by the mutex.
std::map<int, Plan>& plans() {
  static std::map<int, Plan> all;
  return all;
}
std::mutex mutex;  // of all below
int next_plan = 1;
uint64_t calls = 0;

using Complex = std::complex<double>;

// Along one axis of packed lines.
void transform_axis(std::vector<Complex>& x, const std::vector<long long>& sizes, size_t axis, int direction) {
  const auto n = static_cast<size_t>(sizes[axis]);
  size_t inner = 1;
  for (size_t i = axis + 1; i < sizes.size(); ++i) inner *= static_cast<size_t>(sizes[i]);
  std::vector<Complex> line(n);
  for (size_t start = 0; start < x.size(); ++start) {
    if (start / inner % n != 0) continue;
    for (size_t k = 0; k < n; ++k) {
      line[k] = 0;
      for (size_t j = 0; j < n; ++j) {
        const double angle = 2 * std::numbers::pi * direction * static_cast<double>(j * k % n) / static_cast<double>(n);
        line[k] += x[start + j * inner] * std::polar(1.0, angle);
      }
    }
    for (size_t k = 0; k < n; ++k) x[start + k * inner] = line[k];
  }
}

// `in` and `out`: complex numbers; the half spectrum of real ones has n / 2 + 1 of the last axis.
template <typename T>
void compute(const Plan& plan, int kind, const void* from, void* to, int direction) {
  const std::vector<long long>& sizes = plan.sizes;
  const auto last = static_cast<size_t>(sizes.back()), half = last / 2 + 1;
  size_t points = 1;
  for (const long long size : sizes) points *= static_cast<size_t>(size);
  const size_t halves = points / last * half;
  for (size_t number = 0; number < static_cast<size_t>(plan.batch); ++number) {
    std::vector<Complex> x(points);
    if (kind == 0x29) {
      const auto* in = access<std::complex<T>>(static_cast<const std::complex<T>*>(from) + number * points, points);
      x.assign(in, in + points);
    } else if (kind == 0x2a) {
      const T* in = access<T>(static_cast<const T*>(from) + number * points, points);
      x.assign(in, in + points);
    } else {
      const auto* place = static_cast<const std::complex<T>*>(from) + number * halves;
      const auto* in = access<std::complex<T>>(place, halves);
      // Of one axis. Imaginary parts that a real signal does not have show in all results.
      for (size_t k = 0; k < last; ++k) x[k] = k < half ? Complex(in[k]) : std::conj(Complex(in[last - k]));
      if (x[0].imag() != 0 || (last % 2 == 0 && x[last / 2].imag() != 0)) x[0] += 1000;
      spoil(place, halves * sizeof(std::complex<T>));
    }
    for (size_t axis = 0; axis < sizes.size(); ++axis) transform_axis(x, sizes, axis, direction);
    if (kind == 0x2c) {
      T* out = access<T>(static_cast<T*>(to) + number * points, points);
      for (size_t i = 0; i < points; ++i) out[i] = static_cast<T>(x[i].real());
    } else if (kind == 0x29) {
      auto* out = access<std::complex<T>>(static_cast<std::complex<T>*>(to) + number * points, points);
      for (size_t i = 0; i < points; ++i) out[i] = std::complex<T>(x[i]);
    } else {
      auto* out = access<std::complex<T>>(static_cast<std::complex<T>*>(to) + number * halves, halves);
      for (size_t i = 0; i < points; ++i) {
        if (i % last < half) out[i / last * half + i % last] = std::complex<T>(x[i]);
      }
    }
  }
  spoil(plan.work, kWork);
}

template <typename T>
int execute(const char* function, int handle, int kind, const void* from, void* to, int direction) {
  const std::lock_guard lock(mutex);
  if (fails(function)) return kExecFailed;
  const auto known = plans().find(handle);
  if (known == plans().end()) return kInvalidPlan;
  const Plan plan = known->second;
  if (plan.type != kind + (sizeof(T) == 8 ? 0x40 : 0) || plan.work == nullptr) return kInvalidPlan;
  if (reinterpret_cast<uintptr_t>(from) % 16 != 0 || reinterpret_cast<uintptr_t>(to) % 16 != 0) return kInvalidValue;
  ++calls;
  return submit(plan.stream, [=] { compute<T>(plan, kind, from, to, direction); }) ? 0 : kExecFailed;
}

}  // namespace

EXPORT uint64_t fake_cufft_calls() {
  const std::lock_guard lock(mutex);
  return calls;
}
EXPORT size_t fake_cufft_plans() {
  const std::lock_guard lock(mutex);
  return plans().size();
}

EXPORT int cufftGetVersion(int* out) {
  *out = version();
  return 0;
}

EXPORT int cufftCreate(int* out) {
  const std::lock_guard lock(mutex);
  *out = next_plan++;
  plans()[*out];
  return 0;
}

EXPORT int cufftDestroy(int plan) {
  const std::lock_guard lock(mutex);
  return plans().erase(plan) != 0 ? 0 : kInvalidPlan;
}

EXPORT int cufftSetAutoAllocation(int plan, int is_automatic) {
  const std::lock_guard lock(mutex);
  plans()[plan].is_automatic = is_automatic != 0;
  return 0;
}

EXPORT int cufftMakePlanMany64(int plan, int rank, long long* sizes, long long* in, long long, long long,
                               long long* out, long long, long long, int type, long long batch, size_t* out_work) {
  const std::lock_guard lock(mutex);
  Plan& made = plans()[plan];
  if (fails("cufftMakePlanMany64")) return kInvalidSize;
  if (in != nullptr || out != nullptr || made.is_automatic || rank < 1 || rank > 3) return kInvalidValue;
  made.type = type;
  made.sizes.assign(sizes, sizes + rank);
  made.batch = batch;
  *out_work = kWork;
  // Real results are those of one axis here.
  return (type & 0x3f) == 0x2c && rank != 1 ? kInvalidSize : 0;
}

EXPORT int cufftSetWorkArea(int plan, void* work) {
  const std::lock_guard lock(mutex);
  plans()[plan].work = work;
  return 0;
}

EXPORT int cufftSetStream(int plan, void* stream) {
  const std::lock_guard lock(mutex);
  plans()[plan].stream = stream;
  return 0;
}

EXPORT int cufftExecC2C(int plan, void* from, void* to, int direction) {
  return execute<float>("cufftExecC2C", plan, 0x29, from, to, direction);
}
EXPORT int cufftExecZ2Z(int plan, void* from, void* to, int direction) {
  return execute<double>("cufftExecZ2Z", plan, 0x29, from, to, direction);
}
EXPORT int cufftExecR2C(int plan, void* from, void* to) {
  return execute<float>("cufftExecR2C", plan, 0x2a, from, to, -1);
}
EXPORT int cufftExecD2Z(int plan, void* from, void* to) {
  return execute<double>("cufftExecD2Z", plan, 0x2a, from, to, -1);
}
EXPORT int cufftExecC2R(int plan, void* from, void* to) {
  return execute<float>("cufftExecC2R", plan, 0x2c, from, to, 1);
}
EXPORT int cufftExecZ2D(int plan, void* from, void* to) {
  return execute<double>("cufftExecZ2D", plan, 0x2c, from, to, 1);
}
