#include <doctest/doctest.h>

#include <algorithm>

#include "aotpack/aotpack.h"
#include "fixtures.h"
#include "hal/cpu/target.h"

using namespace aotpack::runtime;

#if defined(__x86_64__)

namespace {

// All that any target asks for.
HostFeatures best_host() {
  HostFeatures host;
  host.leaf1_ecx = host.extended1_ecx = 0xFFFFFFFF;
  host.leaf7_ebx = host.leaf7_ecx = host.leaf7_edx = host.leaf7_1_eax = 0xFFFFFFFF;
  host.xcr0 = 0x600E7;
  return host;
}

// All that x86-64-v4 asks for, and nothing more.
HostFeatures v4_host() {
  HostFeatures host = best_host();
  host.leaf7_ecx = host.leaf7_edx = host.leaf7_1_eax = 0;
  host.xcr0 = 0xE7;
  return host;
}

using Targets = std::vector<std::string_view>;

}  // namespace

TEST_CASE("targets of a host, best first") {
  CHECK(runnable_targets(v4_host()) == Targets{"x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"});
  HostFeatures host = v4_host();
  host.leaf7_ebx &= ~(1u << 30);
  CHECK(runnable_targets(host) == Targets{"x86-64-v3", "x86-64-v2", "x86-64"});
  CHECK(missing_features("x86-64-v4", host) == "avx512bw");
  host.leaf1_ecx &= ~(1u << 12);
  CHECK(missing_features("x86-64-v4", host) == "fma, avx512bw");
  CHECK(runnable_targets(host) == Targets{"x86-64-v2", "x86-64"});
  CHECK(runnable_targets(HostFeatures{}) == Targets{"x86-64"});
}

TEST_CASE("targets with instructions for bf16") {
  const Targets all = {"x86-64-v4-amx", "x86-64-v4-bf16", "x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64"};
  HostFeatures host = best_host();
  CHECK(runnable_targets(host) == all);
  host.xcr0 = 0xE7;
  CHECK(missing_features("x86-64-v4-amx", host) == "AMX state saved by the operating system");
  CHECK(runnable_targets(host) == Targets(all.begin() + 1, all.end()));
  host.leaf7_1_eax = 0;
  CHECK(missing_features("x86-64-v4-bf16", host) == "avx512_bf16");
  CHECK(runnable_targets(host) == Targets(all.begin() + 2, all.end()));
}

TEST_CASE("the operating system has to save the registers") {
  HostFeatures host = v4_host();
  host.xcr0 = 0x7;
  CHECK(missing_features("x86-64-v4", host) == "AVX-512 state saved by the operating system");
  CHECK(runnable_targets(host).front() == "x86-64-v3");
  host.xcr0 = 0x3;
  CHECK(runnable_targets(host).front() == "x86-64-v2");
}

TEST_CASE("this host agrees with the compiler's run-time check") {
  const Targets& targets = host_targets();
  const auto runs = [&](const char* name) { return std::find(targets.begin(), targets.end(), name) != targets.end(); };
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  CHECK(runs("x86-64-v3") == v3);
  CHECK(runs("x86-64-v4") == v4);
  CHECK(std::string(aotpack_host_target()) == targets.front());
}

TEST_CASE("an archive without a module for this host says what is missing") {
  using namespace aotpack::tests;
  ArchiveWriter writer = affine_archive();
  writer.manifest["entries"][0]["variants"][0]["targets"] =
      targets({module(1, {0}, {"alloc", "free"}, "aarch64"), module(1, {0}, {"alloc", "free"}, "riscv-vector")});
  const aotpack::Error error = load_error(writer);
  CHECK(error.code() == AOTPACK_UNSUPPORTED_TARGET);
  const std::string message = error.what();
  CHECK(message.find(
            "entry 'forward' has no module that this host runs: aarch64 needs a processor of architecture aarch64; "
            "riscv-vector needs an unknown target (the host's best target is ") != std::string::npos);
}

TEST_CASE("the best of several targets is chosen, whatever their order") {
  using namespace aotpack::tests;
  for (const bool better_first : {false, true}) {
    ArchiveWriter writer = affine_archive();
    writer.files.push_back({"modules/x86-64-v2/forward", read_bytes(MODULE_affine_v2)});
    Json& list = writer.manifest["entries"][0]["variants"][0]["targets"];
    list = targets({module(1, {0}, {"alloc", "free"}), module(3, {0}, {"alloc", "free"}, "x86-64-v2")});
    if (better_first) std::swap(list[0], list[1]);
    const TempFile file(writer);
    const auto model = aotpack::Model::load(file.path());
    CHECK(model.entry_target(0) == "x86-64-v2");
    const float x[4] = {1, 1, 1, 1};
    CHECK(aotpack::Context(model).run({aotpack::TensorView(x, {1, 4})})[0].data<float>()[0] == 4);
  }
}

#elif defined(__aarch64__)

TEST_CASE("vectors of SVE must have the length that code was compiled for") {
  using Targets = std::vector<std::string_view>;
  HostFeatures host;
  host.hwcap = host.hwcap2 = 0xFFFFFFFF;
  host.sve_lengths = 1u << 1;
  const Targets all = {"aarch64-sve256", "aarch64-bf16", "aarch64-dotprod", "aarch64"};
  CHECK(runnable_targets(host) == all);
  for (const uint32_t other : {0u, 1u << 0, 1u << 2, 1u << 3}) {  // none, 128, 384, 512 bits
    host.sve_lengths = other;
    CHECK(missing_features("aarch64-sve256", host) == "SVE vectors of 256 bits");
    CHECK(runnable_targets(host) == Targets(all.begin() + 1, all.end()));
  }
  host.sve_lengths = 1u << 1;
  host.hwcap &= ~(1u << 22);
  CHECK(missing_features("aarch64-sve256", host) == "sve");
}

TEST_CASE("this host has one length of vectors, or none") {
  const HostFeatures host = HostFeatures::read();
  const bool sve = (host.hwcap & (1u << 22)) != 0;
  CHECK((host.sve_lengths != 0) == sve);
  CHECK((host.sve_lengths & (host.sve_lengths - 1)) == 0);
}

#endif
