// Timing and data that the benchmarks of the kernels share.
#pragma once

#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "knobs.h"
#include "types.h"

namespace aotpack::kernels::bench {

// From the command line.
extern int threads;
extern bool turns_knobs;
extern std::string filter;

// Prints the best time of several runs, where the name has the filter.
void report(const std::string& name, double flops, double bytes, const std::function<void()>& run);

// Every position of every knob, each in turns with position 0 of all: the share of the time that it takes.
void report_knobs(const KnobSizes& sizes, const std::function<void(Knobs)>& run);

// Memory as the runtime hands it out: aligned to 64 bytes.
template <class T>
struct Aligned {
  using value_type = T;
  Aligned() = default;
  template <class U>
  Aligned(const Aligned<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const Aligned&) const { return true; }
};
using Floats = std::vector<float, Aligned<float>>;

// As many floats, or twice as many bf16: both halves of each float are the same ordinary number.
Floats floats(int64_t n);
// Memory of n numbers of the dtype.
Floats numbers(DType dtype, int64_t n);

inline const char* dtype_name(DType d) { return d == DType::f32 ? "f32" : "bf16"; }

}  // namespace aotpack::kernels::bench
