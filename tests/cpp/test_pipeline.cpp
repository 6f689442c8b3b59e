// Pipelines: order, errors, state, closing, bounded queues, threads and forks.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "host/cpus.h"
#include "pipeline/pipeline.h"
#include "stages_fixture.h"

using namespace aotpack::tests;
using aotpack::Model;
using aotpack::MutableTensorView;
using aotpack::PendingCall;
using aotpack::Pipeline;
using aotpack::PipelineOptions;
using aotpack::PipelineWorker;
using aotpack::TensorView;
using aotpack::runtime::CpuSet;

namespace {

Model model_of(const ArchiveWriter& writer) {
  const TempFile file(writer);
  return Model::load(file.path());
}

PendingCall submit(Pipeline& pipeline, const std::vector<float>& x) {
  return pipeline.submit({TensorView(x.data(), {static_cast<int64_t>(x.size()) / 4, 4})});
}

// Its second step fails in the way that `mode` says; see modules/failing.c. 7 is none.
ArchiveWriter chain_that_fails() {
  return with_steps({step(twice(), {reference("input", 0)}, {reference("value", 0)}),
                     step(failing(), {reference("input", 1)}, {reference("output", 1)}),
                     step(thrice(), {reference("value", 0)}, {reference("output", 0)})},
                    {row_between("h")}, {row("y"), value("f", "float32", {2})}, {row("x"), value("mode", "int64", {})});
}

// Counts up in its second step; x goes through the first.
ArchiveWriter counter() {
  return with_steps({step(twice(), {reference("input", 0)}, {reference("output", 0)}),
                     step(mutate(), {reference("input", 1)}, {reference("output", 1)})},
                    {}, {row("y"), value("counted", "int64", {2})}, {row("x"), value("m", "float32", {4}, {}, true)});
}

}  // namespace

TEST_CASE("pipelines: results are those of a context, in the order of submission, for every size") {
  const Model model = model_of(chain());
  CHECK(aotpack_model_stage_count(model.handle(), 0) == 2);
  CHECK(aotpack_model_stage_count(model.handle(), 1) == 0);
  for (const size_t max_in_flight : {0, 1, 2, 7}) {
    PipelineOptions options;
    options.max_in_flight = max_in_flight;
    Pipeline pipeline(model, options);
    std::vector<PendingCall> calls;
    for (size_t i = 0; i < 40; ++i) {
      // A temporary: the pipeline has copied it when submit returns.
      calls.push_back(submit(pipeline, ramp(i * 4)));
    }
    for (size_t i = 0; i < calls.size(); ++i) CHECK(floats(calls[i].take()[0]) == chained(ramp(i * 4)));
  }
}

TEST_CASE("pipelines: several workers of a stage, an entry of one step, results that outlive everything") {
  std::vector<aotpack::Tensor> kept;
  {
    const Model model = model_of(chain());
    PipelineOptions options;
    options.workers = {{0}, {0}, {0}, {1}, {1}};
    Pipeline pipeline(model, options);
    std::vector<PendingCall> calls;
    for (size_t i = 0; i < 100; ++i) calls.push_back(submit(pipeline, ramp(4 * (i % 5))));
    for (size_t i = 0; i < 100; ++i) CHECK(floats(calls[i].take()[0]) == chained(ramp(4 * (i % 5))));
    calls.clear();
    calls.push_back(submit(pipeline, ramp(8)));
    kept = calls[0].take();
  }
  CHECK(floats(kept[0]) == chained(ramp(8)));
  const Model model = model_of(affine_archive());
  Pipeline pipeline(model);
  CHECK(floats(submit(pipeline, {1, 1, 1, 1}).take()[0]) == std::vector<float>{3, 4, 5, 6});
}

TEST_CASE("pipelines: an invalid call and a failing one leave the others as they are") {
  const Model model = model_of(chain());
  Pipeline pipeline(model);
  PendingCall first = submit(pipeline, ramp(4));
  const std::vector<float> x = ramp(10);
  const aotpack::Error error = error_of([&] { pipeline.submit({TensorView(x.data(), {2, 5})}); });
  CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
  CHECK(message_of(error) == "input 'x': dim 1 must be 4, got 5");
  CHECK(floats(submit(pipeline, ramp(8)).take()[0]) == chained(ramp(8)));
  CHECK(floats(first.take()[0]) == chained(ramp(4)));
  CHECK(message_of(error_of([&] { first.take(); })) == "the results of this call have been taken");

  const Model failing = model_of(chain_that_fails());
  Pipeline second(failing);
  std::vector<PendingCall> calls;
  const std::vector<float> rows = ramp(8);
  for (int64_t mode = 0; mode < 8; ++mode) {
    calls.push_back(second.submit({TensorView(rows.data(), {2, 4}), TensorView(&mode, {})}));
  }
  for (int again = 0; again < 2; ++again) {
    CHECK(message_of(error_of([&] { calls[0].take(); })) ==
          "entry 'forward', step 2: index 50 is out of range [0, 10)");
    CHECK(error_of([&] { calls[1].take(); }).code() == AOTPACK_OUT_OF_MEMORY);
    CHECK(error_of([&] { calls[6].take(); }).code() == AOTPACK_INTERNAL);
  }
  CHECK(floats(calls[7].take()[0]) == chained(rows));
}

TEST_CASE("pipelines: state changes in the order of submission; an input that is written to") {
  const Model model = model_of(counter());
  Pipeline pipeline(model);
  std::vector<float> written(5 * 4, 1.0f);
  std::vector<PendingCall> calls;
  for (size_t i = 0; i < 5; ++i) {
    const std::vector<float> x = ramp(4);
    calls.push_back(pipeline.submit({TensorView(x.data(), {1, 4}), MutableTensorView(written.data() + 4 * i, {4})}));
  }
  for (int64_t i = 0; i < 5; ++i) CHECK(calls[static_cast<size_t>(i)].take()[1].data<int64_t>()[0] == 101 + i);
  CHECK(written == std::vector<float>(20, 2.0f));
  CHECK(pipeline.state()[0].second.data<int64_t>()[0] == 105);
  const int64_t count = 7;
  pipeline.load_state({{"count", TensorView(&count, {})}});
  CHECK(pipeline.state()[0].second.data<int64_t>()[0] == 7);
  pipeline.reset();
  CHECK(pipeline.state()[0].second.data<int64_t>()[0] == 100);
  // Read-only memory is refused, and so are two workers of a stage with state.
  const std::vector<float> x = ramp(4);
  CHECK_THROWS_AS(pipeline.submit({TensorView(x.data(), {1, 4}), TensorView(x.data(), {4})}), aotpack::Error);
  PipelineOptions options;
  options.workers = {{0}, {1}, {1}};
  CHECK(message_of(error_of([&] { Pipeline(model, options); })) ==
        "stage 1 uses the state 'count', so it can have one worker only, got 2");
}

TEST_CASE("pipelines: closing drains or cancels, and ends what waits for room") {
  const Model model = model_of(chain());
  for (const bool cancel : {false, true}) {
    PipelineOptions options;
    options.max_in_flight = 3;
    Pipeline pipeline(model, options);
    std::vector<PendingCall> calls;
    std::atomic<int> refused{0};
    std::thread other([&] {
      try {
        for (int i = 0; i < 100000; ++i) calls.push_back(submit(pipeline, ramp(256)));
      } catch (const aotpack::Error& error) {
        if (error.code() == AOTPACK_CANCELLED) ++refused;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pipeline.close(cancel);
    other.join();
    CHECK(refused == 1);
    size_t cancelled = 0;
    for (PendingCall& call : calls) {
      CHECK(call.wait(0));
      try {
        if (floats(call.take()[0]) != chained(ramp(256))) FAIL("wrong result");
      } catch (const aotpack::Error& error) {
        if (error.code() != AOTPACK_CANCELLED) throw;
        ++cancelled;
      }
    }
    CHECK(cancelled <= (cancel ? 3 : 0));
    CHECK(error_of([&] { submit(pipeline, ramp(4)); }).code() == AOTPACK_CANCELLED);
    pipeline.close();
  }
}

TEST_CASE("pipelines: many threads submit, and drop calls that have not ended") {
  const Model model = model_of(chain());
  PipelineOptions options;
  options.workers = {{0}, {0}, {1}};
  Pipeline pipeline(model, options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t self = 0; self < 4; ++self) {
    threads.emplace_back([&, self] {
      for (size_t round = 0; round < 100; ++round) {
        const std::vector<float> x(4 * (1 + (self + round) % 8), static_cast<float>(self * 1000 + round));
        PendingCall call = submit(pipeline, x);
        if (round % 3 == 0) continue;
        if (floats(call.take()[0]) != chained(x)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("pipelines: options that cannot be") {
  const Model model = model_of(chain());
  const auto refused = [&](PipelineOptions options) { return message_of(error_of([&] { Pipeline(model, options); })); };
  PipelineOptions options;
  options.entry = 1;
  CHECK(refused(options) == "there is no entry 1; the model has 1");
  options.entry = 0;
  options.workers = {{0}};
  CHECK(refused(options) == "stage 1 has no worker");
  options.workers = {{0}, {2}};
  CHECK(refused(options) == "there is no stage 2; entry 'forward' has 2");
  options.workers = {{0}, {1, {}, -1}};
  CHECK(refused(options) == "num_threads must be in [0, 4096], got -1");
  for (const int32_t cpu : {-1, 65535, 65536, INT32_MAX}) {
    options.workers = {{0}, {1, {cpu}}};
    CHECK(refused(options).find("the worker of stage 1 cannot run on the CPUs") == 0);
  }
  options.workers.clear();
  options.max_in_flight = (1 << 16) + 1;
  CHECK(refused(options) == "max_in_flight must be at most 65536, got 65537");
}

TEST_CASE("pipelines: only their own threads are bound, to their groups") {
  const CpuSet before = aotpack::runtime::cpus_of_thread();
  REQUIRE(!before.empty());
  const Model model = model_of(chain());
  PipelineOptions options;
  options.workers = {{0, {before.front()}}, {1, {before.back(), before.front(), before.back()}}};
  Pipeline pipeline(model, options);
  CHECK(floats(submit(pipeline, ramp(4)).take()[0]) == chained(ramp(4)));
  CHECK(aotpack::runtime::cpus_of_thread() == before);
}

TEST_CASE("pipelines: CPUs are divided evenly, and shared where there are too few") {
  using aotpack::runtime::cpus_text;
  using aotpack::runtime::split_cpus;
  CHECK(split_cpus({0, 1, 2, 3, 8}, 2) == std::vector<CpuSet>{{0, 1}, {2, 3, 8}});
  CHECK(split_cpus({5, 6}, 3) == std::vector<CpuSet>{{5}, {5}, {6}});
  CHECK(split_cpus({}, 2) == std::vector<CpuSet>{{}, {}});
  CHECK(split_cpus({1}, 0).empty());
  CHECK(cpus_text({0, 1, 2, 3, 8}) == "0-3,8");
  CHECK(cpus_text({}) == "");
}

TEST_CASE("pipelines: the child of a fork is told, and does not wait") {
  const Model model = model_of(chain());
  Pipeline pipeline(model);
  PendingCall call = submit(pipeline, ramp(4));
  CHECK(call.wait());
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int refusals = 0;
    const auto refuses = [&](const std::function<void()>& body) {
      try {
        body();
      } catch (const aotpack::Error&) {
        ++refusals;
      }
    };
    refuses([&] { submit(pipeline, ramp(4)); });
    refuses([&] { pipeline.close(); });
    refuses([&] { call.wait(); });
    {
      const PendingCall dropped = std::move(call);
    }
    {
      const Pipeline dropped = std::move(pipeline);
    }
    ::_exit(refusals == 3 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(floats(call.take()[0]) == chained(ramp(4)));
}
