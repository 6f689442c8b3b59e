// Times the algorithms that compute the same convolutions, one after the other, for builds that choose by measurement
// (docs/tuning.md). A program of its own, linked with the kernels of a target.
//
// Input, numbers and words between blanks: `threads seconds bytes`, then the sites, the most important first:
//   conv n c oc in_high in_wide out_high out_wide top left
//   block dtype n c channels oc in_high in_wide out_high out_wide kernel_high kernel_wide stride_high stride_wide
//         top left dilation_high dilation_wide expands projects
// Output: a line `site algorithm nanoseconds` for each call, in order. Of a conv, algorithm 0 is direct, 1 is
// Winograd's with tiles of 2 x 2 outputs and 2 with tiles of 4 x 4; of a block, 0 is one convolution after the other
// and 1 is one call.
//
// Sites take turns as the layers of a network do: each reads what the last one wrote, and its weights are elsewhere in
// memory than those of the call before. The weights of all are `bytes` together, as those of the model: what a cache
// holds in its calls, it holds here.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "kernels/conv.h"
#include "kernels/depthwise_block.h"
#include "kernels/linear.h"

using namespace aotpack::kernels;

namespace {

constexpr int kLeastRounds = 4;
constexpr int kMostRounds = 48;
constexpr float kBias = 0.5f;

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
using Bytes = std::vector<char, Aligned<char>>;

// What sites read and write. Results stay ordinary numbers however often they are read again: weights are small, and
// the bias is not.
struct Memory {
  Bytes weights, source, result, between, scratch;
  std::vector<float> bias;
  std::vector<uint16_t> bias_halves;
  size_t next = 0;  // of the weights

  // So many bytes of weights, behind those that were taken last.
  const void* take(size_t size) {
    if (next + size > weights.size()) next = 0;
    const char* const found = weights.data() + next;
    next += (size + 63) / 64 * 64;
    return found;
  }
};

// Bytes that a site needs at most.
struct Needs {
  size_t weights = 0, image = 0, between = 0, scratch = 0;
  int64_t channels = 0;
  void include(const Needs& other) {
    weights = std::max(weights, other.weights);
    image = std::max(image, other.image);
    between = std::max(between, other.between);
    scratch = std::max(scratch, other.scratch);
    channels = std::max(channels, other.channels);
  }
};

struct Site {
  Needs needs;
  std::vector<std::function<void(Memory&)>> algorithms;
};

int threads = 1;

// Processor time where one thread does the work, so that other load on the machine counts less; else wall time.
double now() {
  if (threads == 1) {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t number() {
  int64_t value = 0;
  if (!(std::cin >> value) || value < 0) {
    std::fprintf(stderr, "a number is expected\n");
    std::exit(2);
  }
  return value;
}

size_t bytes_of(int64_t count, DType dtype) { return static_cast<size_t>(count) * dtype_size(dtype); }

const void* bias_of(const Memory& memory, DType dtype) {
  if (dtype == DType::f32) return memory.bias.data();
  return memory.bias_halves.data();
}

Site conv_site() {
  ConvArgs a = {};
  a.dtype = DType::f32;
  a.n = number(), a.c = number(), a.oc = number();
  a.groups = 1;
  a.act = Act::relu;
  a.num_threads = threads;
  for (int d = 0; d < 3; ++d) {
    a.in[d] = a.out[d] = a.kernel[d] = a.stride[d] = a.dilation[d] = 1;
    if (d > 0) a.kernel[d] = 3;
  }
  a.in[1] = number(), a.in[2] = number(), a.out[1] = number(), a.out[2] = number();
  a.padding[1] = number(), a.padding[2] = number();
  Site site;
  for (const Winograd winograd : {Winograd::none, Winograd::two, Winograd::four}) {
    a.winograd = winograd;
    const int64_t elements = winograd == Winograd::none ? 9 : winograd_elements(winograd);
    const size_t weights = bytes_of(round_up(a.oc, kPanel) * a.c * elements, a.dtype);
    const int64_t image = a.n * max64(a.c * a.in[1] * a.in[2], a.oc * a.out[1] * a.out[2]);
    site.needs.include({weights, bytes_of(image, a.dtype), 0, conv_scratch_bytes(a), round_up(a.oc, kPanel)});
    site.algorithms.emplace_back([a, weights](Memory& memory) mutable {
      a.x = memory.source.data(), a.y = memory.result.data();
      a.w_packed = memory.take(weights);
      a.bias = bias_of(memory, a.dtype);
      a.scratch = memory.scratch.data();
      conv(a);
    });
  }
  return site;
}

void pointwise(const DepthwiseBlockArgs& b, const BlockStage& stage, int64_t pixels, int64_t oc, int64_t c,
               const void* x, void* y) {
  linear({b.dtype, pixels, oc, c, x, c, stage.w_packed, stage.bias, nullptr, 0, stage.act, y, oc, b.num_threads});
}

// The three convolutions one after the other, with memory of their own between.
void in_parts(const DepthwiseBlockArgs& b, Memory& memory) {
  ConvArgs d = depthwise_of(b);
  d.scratch = memory.scratch.data();
  const int64_t in_pixels = b.n * b.in[0] * b.in[1], out_pixels = b.n * b.out[0] * b.out[1];
  char* const wide = memory.between.data();
  char* const filtered = wide + bytes_of(in_pixels * b.channels, b.dtype) / 64 * 64 + 64;
  d.x = b.x;
  if (b.expand.w_packed != nullptr) {
    pointwise(b, b.expand, in_pixels, b.channels, b.c, b.x, wide);
    d.x = wide;
  }
  d.y = b.project.w_packed != nullptr ? filtered : b.y;
  conv(d);
  if (b.project.w_packed != nullptr) pointwise(b, b.project, out_pixels, b.oc, b.channels, filtered, b.y);
}

Site block_site() {
  DepthwiseBlockArgs b = {};
  b.dtype = static_cast<DType>(number());
  b.n = number(), b.c = number(), b.channels = number(), b.oc = number();
  for (int64_t* const field : {b.in, b.out, b.kernel, b.stride, b.padding, b.dilation}) {
    field[0] = number(), field[1] = number();
  }
  const bool expands = number() != 0, projects = number() != 0;
  b.num_threads = threads;
  const int64_t in_pixels = b.n * b.in[0] * b.in[1], out_pixels = b.n * b.out[0] * b.out[1];
  const size_t expand = expands ? bytes_of(round_up(b.channels, kPanel) * b.c, b.dtype) : 0;
  const size_t filter = bytes_of(b.kernel[0] * b.kernel[1] * b.channels, b.dtype);
  const size_t project = projects ? bytes_of(round_up(b.oc, kPanel) * b.channels, b.dtype) : 0;
  // For the sizes of scratch, it counts which weights are null.
  const char some = 0;
  b.expand = {expands ? &some : nullptr, nullptr, Act::relu6};
  b.depthwise = {&some, nullptr, Act::relu6};
  b.project = {projects ? &some : nullptr, nullptr, Act::none};
  const int64_t widest = round_up(max64(b.channels, max64(b.c, b.oc)), kPanel);
  const int64_t image = max64(in_pixels * b.c, out_pixels * b.oc);
  Site site;
  site.needs = {expand + filter + project + 256, bytes_of(image, b.dtype),
                bytes_of((in_pixels + out_pixels) * b.channels, b.dtype) + 256, depthwise_block_scratch_bytes(b),
                widest};
  for (const bool fused : {false, true}) {
    site.algorithms.emplace_back([=](Memory& memory) mutable {
      b.x = memory.source.data(), b.y = memory.result.data();
      b.scratch = memory.scratch.data();
      const void* const bias = bias_of(memory, b.dtype);
      b.expand.w_packed = expands ? memory.take(expand) : nullptr;
      b.depthwise.w_packed = memory.take(filter);
      b.project.w_packed = projects ? memory.take(project) : nullptr;
      b.expand.bias = b.depthwise.bias = b.project.bias = bias;
      if (fused) return depthwise_block(b);
      in_parts(b, memory);
    });
  }
  return site;
}

Memory memory_for(const Needs& needs, size_t weights) {
  Memory m;
  m.weights.resize(std::max(weights, needs.weights));
  // Either as floats or as pairs of bf16, ordinary small numbers of both signs.
  for (size_t i = 0; i + 4 <= m.weights.size(); i += 4) {
    const float value = static_cast<float>(static_cast<int>(i * 2654435761u >> 20 & 15) - 7) * 0.0005f;
    uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    bits = (bits & 0xffff0000u) | bits >> 16;
    std::memcpy(m.weights.data() + i, &bits, 4);
  }
  m.source.resize(needs.image);
  m.result.resize(needs.image);
  m.between.resize(needs.between);
  m.scratch.resize(needs.scratch);
  m.bias.assign(static_cast<size_t>(needs.channels), kBias);
  m.bias_halves.assign(static_cast<size_t>(needs.channels), uint16_t{0x3f00});  // bf16's 0.5, f16's 1.75
  return m;
}

double timed(const Site& site, size_t algorithm, Memory& memory) {
  const double began = now();
  site.algorithms[algorithm](memory);
  const double seconds = now() - began;
  std::swap(memory.source, memory.result);
  return seconds;
}

}  // namespace

int main() {
  threads = static_cast<int>(max64(number(), 1));
  double budget = 0.0;
  std::cin >> budget;
  const size_t weights = static_cast<size_t>(number());
  std::vector<Site> sites;
  Needs needs;
  for (std::string kind; std::cin >> kind;) {
    if (kind != "conv" && kind != "block") {
      std::fprintf(stderr, "%s is neither conv nor block\n", kind.c_str());
      return 2;
    }
    sites.push_back(kind == "conv" ? conv_site() : block_site());
    needs.include(sites.back().needs);
  }
  Memory memory = memory_for(needs, weights);
  // The first round brings memory and threads up, and says for how many sites there is time.
  const auto began = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
  size_t count = 0;
  for (double once = 0.0; count < sites.size(); ++count) {
    for (size_t algorithm = 0; algorithm < sites[count].algorithms.size(); ++algorithm) {
      timed(sites[count], algorithm, memory);
      const double start = elapsed();
      timed(sites[count], algorithm, memory);
      once += elapsed() - start;
    }
    if (elapsed() + kLeastRounds * once > budget) break;
  }
  for (int round = 0; count > 0 && round < kMostRounds; ++round) {
    const double start = elapsed();
    for (size_t i = 0; i < count; ++i) {
      const size_t ways = sites[i].algorithms.size();
      for (size_t turn = 0; turn < ways; ++turn) {
        const size_t algorithm = round % 2 == 0 ? turn : ways - 1 - turn;
        const double seconds = timed(sites[i], algorithm, memory);
        std::printf("%zu %zu %.0f\n", i, algorithm, seconds * 1e9);
      }
    }
    if (round + 1 >= kLeastRounds && 2 * elapsed() - start > budget) break;
  }
  return 0;
}
