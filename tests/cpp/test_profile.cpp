// Calls that record when they, their steps and kernels begin and end.
#include <doctest/doctest.h>

#include <vector>

#include "fixtures.h"
#include "hal/profile.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::TensorView;

namespace {

constexpr uint32_t kAll = AOTPACK_PROFILE_ALL;

Context profiled_context() {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_profiled)}};
  writer.manifest = manifest({}, {entry("forward", {}, {value("x", "float32", {})}, {value("y", "float32", {})},
                                        {variant("default", {}, {module(0, {}, {"alloc", "fail", "mark"})})})});
  return Context(load(writer));
}

void call(Context& context, float x) {
  const std::vector<aotpack::Tensor> outputs = context.run({TensorView(&x, {})});
  CHECK(*outputs[0].data<float>() == x);
}

struct Part {
  uint32_t step, kernel;
  bool operator==(const Part& other) const { return step == other.step && kernel == other.kernel; }
};

std::vector<Part> parts(const Context& context) {
  std::vector<Part> found;
  for (const aotpack_profile_event& event : context.profile()) found.push_back({event.step, event.kernel});
  return found;
}

}  // namespace

TEST_CASE("profile: off in a new context, and after it is turned off") {
  Context context = profiled_context();
  call(context, 1);
  CHECK(context.profile().empty());
  context.set_profiling(true);
  CHECK(context.profile().empty());
  call(context, 1);
  CHECK(context.profile().size() == 4);
  context.set_profiling(false);
  CHECK(context.profile().empty());
  call(context, 1);
  CHECK(context.profile().empty());
}

TEST_CASE("profile: the call, its step and every run of a kernel, in the order in which they began") {
  Context context = profiled_context();
  context.set_profiling(true);
  for (const int times : {3, 0, 2}) {
    CAPTURE(times);
    call(context, static_cast<float>(times));
    std::vector<Part> expected = {{kAll, kAll}, {0, kAll}, {0, 0}};
    expected.insert(expected.end(), times, {0, 1});
    CHECK(parts(context) == expected);
  }
  const std::vector<aotpack_profile_event> events = context.profile();
  uint64_t before = 0;
  for (const aotpack_profile_event& event : events) {
    CHECK(event.struct_size == sizeof(aotpack_profile_event));
    CHECK(event.begin_ns >= before);
    CHECK(event.end_ns >= event.begin_ns);
    CHECK(event.end_ns <= events[0].end_ns);
    before = event.begin_ns;
  }
  // Kernels do not overlap, and lie inside of the step.
  for (size_t i = 2; i < events.size(); ++i) {
    CHECK(events[i].end_ns <= events[1].end_ns);
    if (i > 2) CHECK(events[i].begin_ns >= events[i - 1].end_ns);
  }
}

TEST_CASE("profile: a call that fails has no events") {
  Context context = profiled_context();
  context.set_profiling(true);
  call(context, 1);
  const float negative = -1;
  CHECK_THROWS_WITH(context.run({TensorView(&negative, {})}), doctest::Contains("x is negative"));
  CHECK(context.profile().empty());
  const float two[2] = {};
  call(context, 1);
  CHECK_THROWS_AS(context.run({TensorView(two, {2})}), aotpack::Error);
  CHECK(context.profile().empty());
  call(context, 2);
  CHECK(context.profile().size() == 5);
}

TEST_CASE("profile: steps of modules without hooks") {
  Context context(Model::load(TempFile(affine_archive()).path()));
  context.set_profiling(true);
  const float x[4] = {};
  context.run({TensorView(x, {1, 4})});
  CHECK(parts(context) == std::vector<Part>{{kAll, kAll}, {0, kAll}});
}

TEST_CASE("profile: through the C interface") {
  aotpack_status* status = aotpack_context_set_profiling(nullptr, true);
  REQUIRE(status != nullptr);
  CHECK(std::string(aotpack_status_message(status)) == "context is NULL");
  aotpack_status_release(status);
  CHECK(aotpack_context_profile_count(nullptr) == 0);
  CHECK(aotpack_context_profile_event(nullptr, 0) == nullptr);
  Context context = profiled_context();
  CHECK(aotpack_context_profile_count(context.handle()) == 0);
  context.set_profiling(true);
  call(context, 1);
  CHECK(aotpack_context_profile_count(context.handle()) == 4);
  CHECK(aotpack_context_profile_event(context.handle(), 4) == nullptr);
  CHECK(aotpack_context_profile_event(context.handle(), 3)->kernel == 1);
}

TEST_CASE("profile: no more events than fit are kept") {
  Context context = profiled_context();
  context.set_profiling(true);
  const size_t most = aotpack::runtime::Profile::kMostEvents;
  call(context, static_cast<float>(most));
  const std::vector<aotpack_profile_event> events = context.profile();
  REQUIRE(events.size() == most);
  // The call and the step ended all the same.
  CHECK(events[0].end_ns >= events.back().end_ns);
  CHECK(events[1].end_ns >= events.back().end_ns);
  call(context, 1);
  CHECK(context.profile().size() == 4);
}
