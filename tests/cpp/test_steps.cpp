// Variants of several steps: values between them, outputs that steps read, failures, several devices.
#include <doctest/doctest.h>

#include <vector>

#include "base/status.h"
#include "call/context.h"
#include "far_device.h"
#include "stages_fixture.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::MutableTensorView;
using aotpack::TensorView;

namespace {

size_t live_bytes(const aotpack::runtime::Context& context) {
  return context.workspace().allocator()->statistics().live_bytes +
         (context.workspace().is_host() ? 0 : context.workspace().host_allocator()->statistics().live_bytes);
}

}  // namespace

TEST_CASE("steps: a value goes from one to the next, for every size") {
  Context context = context_of(chain());
  CHECK(context.model().entry_target(0) == "x86-64-v2");
  for (const int64_t batch : {1, 0, 2, 64, 3}) {
    const std::vector<float> x = ramp(static_cast<size_t>(batch) * 4);
    CHECK(floats(context.run({TensorView(x.data(), {batch, 4})})[0]) == chained(x));
  }
  // The input through other strides, the output into memory of the caller.
  const std::vector<float> x = ramp(8);
  const std::vector<float> turned = {0, 4, 1, 5, 2, 6, 3, 7};
  const TensorView input(turned.data(), {2, 4}, {1, 2});
  CHECK(floats(context.run({input})[0]) == chained(x));
}

TEST_CASE("steps: nothing of a call stays behind") {
  const Loaded loaded(chain(), aotpack::runtime::cpu_device());
  aotpack::runtime::Context context(loaded.model, 1);
  std::vector<float> x = ramp(8);
  int64_t shape[2] = {2, 4};
  const DLTensor input = host_tensor(x.data(), kFloat, shape, 2);
  const DLTensor* inputs[] = {&input};
  std::vector<float> y(8);
  const DLTensor buffer = host_tensor(y.data(), kFloat, shape, 2);
  const DLTensor* buffers[] = {&buffer};
  uint64_t system_allocs = 0;
  for (int round = 0; round < 4; ++round) {
    context.run_into(0, inputs, 1, buffers, 1);
    CHECK(y == chained(x));
    CHECK(live_bytes(context) == 0);
    DLManagedTensorVersioned* output = nullptr;
    context.run(0, inputs, 1, &output, 1);
    CHECK(live_bytes(context) > 0);
    output->deleter(output);
    CHECK(live_bytes(context) == 0);
    const uint64_t allocs = context.workspace().allocator()->statistics().system_allocs;
    if (round > 0) CHECK(allocs == system_allocs);  // a steady state takes memory from what it has
    system_allocs = allocs;
  }
}

TEST_CASE("steps: an output of an earlier step is an input of a later one, in its own order") {
  Json h = row("h");
  h["order"] = Json::array({1, 0});
  Json g = row_between("g");
  g["order"] = Json::array({1, 0});
  Context context = context_of(with_steps({step(twice(), {reference("input", 0)}, {reference("output", 1)}),
                                           step(thrice(), {reference("output", 1)}, {reference("value", 0)}),
                                           step(twice(), {reference("value", 0)}, {reference("output", 0)})},
                                          {g}, {row("y"), h}));
  const std::vector<float> x = ramp(12);
  const std::vector<aotpack::Tensor> outputs = context.run({TensorView(x.data(), {3, 4})});
  CHECK(outputs[1].strides() == std::vector<int64_t>{1, 3});
  CHECK(outputs[1].data<float>()[3 * 2 + 1] == 2 * x[4 + 2] + 3);  // h[1, 2]
  CHECK(outputs[0].data<float>()[4 + 2] == 2 * (3 * (2 * x[6] + 3) + 3) + 3);
}

TEST_CASE("steps: what aliases inputs, constants and values is copied before it goes or changes") {
  const auto vector = [](const char* name) { return value(name, "float32", {4}); };
  const auto between = [](const char* name) { return intermediate(name, "float32", {4}); };
  // The second step writes to x, of which the first returns a view; the third returns views of values.
  Context context = context_of(with_steps({step(alias(), {reference("input", 0)},
                                                {reference("value", 0), reference("value", 1), reference("output", 0),
                                                 reference("value", 2), reference("value", 3)}),
                                           step(mutate(), {reference("input", 0)}, {reference("output", 1)}),
                                           step(alias(), {reference("value", 1)},
                                                {reference("output", 2), reference("output", 3), reference("value", 4),
                                                 reference("output", 4), reference("output", 5)})},
                                          {between("constant"), between("input"), between("second"),
                                           intermediate("matrix", "float32", {3, 2}), between("unused")},
                                          {vector("first"), value("count", "int64", {2}), vector("constant"),
                                           vector("input"), vector("second"), value("transposed", "float32", {3, 2})},
                                          {value("x", "float32", {4}, {}, true)}));
  for (int round = 1; round <= 3; ++round) {
    std::vector<float> x = {5, 6, 7, 8};
    const std::vector<aotpack::Tensor> outputs = context.run({MutableTensorView(x.data(), {4})});
    CHECK(x == std::vector<float>{6, 7, 8, 9});
    CHECK(floats(outputs[0]) == std::vector<float>{0, 1, 2, 3});
    CHECK(outputs[1].data<int64_t>()[0] == 100 + round);
    CHECK(floats(outputs[2]) == std::vector<float>{1, 2, 3, 4});
    CHECK(floats(outputs[3]) == std::vector<float>{5, 6, 7, 8});  // x before it was written to
    CHECK(floats(outputs[4]) == std::vector<float>{4, 5, 6, 7});
    CHECK(floats(outputs[5]) == std::vector<float>{0, 3, 1, 4, 2, 5});
  }
}

TEST_CASE("steps: one that fails is named, leaves nothing behind, and the context goes on") {
  const auto writer =
      with_steps({step(twice(), {reference("input", 0)}, {reference("value", 0)}),
                  step(failing(), {reference("input", 1)}, {reference("output", 1)}),
                  step(thrice(), {reference("value", 0)}, {reference("output", 0)})},
                 {row_between("h")}, {row("y"), value("f", "float32", {2})}, {row("x"), value("mode", "int64", {})});
  const Loaded loaded(writer, aotpack::runtime::cpu_device());
  aotpack::runtime::Context context(loaded.model, 1);
  std::vector<float> x = ramp(8);
  int64_t mode = 0;
  int64_t shape[2] = {2, 4};
  const DLTensor tensors[] = {host_tensor(x.data(), kFloat, shape, 2), host_tensor(&mode, {kDLInt, 64, 1}, shape, 0)};
  const DLTensor* inputs[] = {&tensors[0], &tensors[1]};
  DLManagedTensorVersioned* outputs[2] = {};
  const auto error = [&](int64_t how) {
    mode = how;
    std::string message;
    try {
      context.run(0, inputs, 2, outputs, 2);
    } catch (const aotpack::runtime::Error& failure) {
      message = failure.message();
    }
    CHECK(outputs[0] == nullptr);
    CHECK(live_bytes(context) == 0);
    return message;
  };
  for (int round = 0; round < 2; ++round) {
    CHECK(error(0) == "entry 'forward', step 2: index 50 is out of range [0, 10)");
    CHECK(error(2) == "entry 'forward', step 2: the module failed without giving a reason");
    CHECK(error(1) == "entry 'forward', step 2: out of memory");
    CHECK(error(6) ==
          "entry 'forward', step 2: the module returned an output 'f' that is not what the manifest says: float32 [2]");
    mode = 9;
    context.run(0, inputs, 2, outputs, 2);
    CHECK(static_cast<const float*>(outputs[0]->dl_tensor.data)[7] == chained(x)[7]);
    for (DLManagedTensorVersioned*& output : outputs) {
      output->deleter(output);
      output = nullptr;
    }
    CHECK(live_bytes(context) == 0);
  }
}

TEST_CASE("steps: the size of a value is known before anything runs, or comes out of the data") {
  ArchiveWriter writer = chain();
  Json& between = writer.manifest["entries"][0]["variants"][0]["targets"][0]["values"][0];
  between["shape"][0] = expression("50 // (batch - 5)", Json::array({50, "$batch", 5, "-", "//"}));
  Context computed = context_of(writer);
  const std::vector<float> x = ramp(64);
  const auto refused = [&](int64_t batch) { return refusal(computed, {TensorView(x.data(), {batch, 4})}); };
  CHECK(refused(5) == "value 'h': dim 0 is 50 // (batch - 5), which cannot be evaluated for 'batch' = 5 by input 'x'");
  CHECK(refused(4) ==
        "value 'h': dim 0 is 50 // (batch - 5) = -50, which is not a valid size ('batch' = 4 by input 'x')");
  const aotpack::Error error = error_of([&] { computed.run({TensorView(x.data(), {6, 4})}); });
  CHECK(error.code() == AOTPACK_INTERNAL);
  CHECK(message_of(error) ==
        "entry 'forward', step 1: the module returned an output 'h' that is not what the manifest "
        "says: float32 [50 // (batch - 5), 4]");
  CHECK(floats(computed.run({TensorView(x.data(), {10, 4})})[0]) == chained(ramp(40)));

  between["shape"][0] = expression("u0", Json());
  Context found = context_of(writer);
  CHECK(floats(found.run({TensorView(x.data(), {5, 4})})[0]) == chained(ramp(20)));
}

TEST_CASE("steps: an implementation is passed over where a module of it cannot run") {
  const auto load = [](const std::function<void(Json&)>& change) {
    ArchiveWriter writer = chain();
    Json& list = writer.manifest["entries"][0]["variants"][0]["targets"];
    list.push(targets({twice()})[0]);
    change(list);
    return writer;
  };
  const auto chosen = [&](const std::function<void(Json&)>& change) {
    return std::string(context_of(load(change)).model().entry_target(0));
  };
  CHECK(chosen([](Json&) {}) == "x86-64-v2");
  CHECK(chosen([](Json& list) { list[0]["steps"][1]["module"]["features"] = Json::array({"novel"}); }) == "x86-64");
  CHECK(chosen([](Json& list) { list[0]["steps"][0]["module"]["target"] = "aarch64"; }) == "x86-64");
  const aotpack::Error error = load_error(load([](Json& list) {
    list[0]["steps"][1]["module"]["features"] = Json::array({"novel"});
    list[1]["steps"][0]["module"]["target"] = "aarch64";
  }));
  CHECK(error.code() == AOTPACK_UNSUPPORTED_TARGET);
  CHECK(message_of(error).find(
            "entry 'forward' has no module that this host runs: x86-64-v2 needs the feature 'novel', "
            "which this runtime does not provide; x86-64 needs aarch64 for one of its steps, which "
            "needs a processor of architecture aarch64 (the host's best target is ") != std::string::npos);
  // A module that is not what the manifest says is named by its step.
  const aotpack::Error wrong =
      load_error(load([](Json& list) { list[0]["steps"][1]["inputs"].push(reference("input", 0)); }));
  CHECK(wrong.code() == AOTPACK_MALFORMED_ARCHIVE);
  CHECK(message_of(wrong).find("entry 'forward', step 2, modules/affine_v2: it has 1 inputs, the manifest 2") !=
        std::string::npos);
}

TEST_CASE("steps on two devices: host, device, host") {
  FarDevice far;
  {
    const Json host;
    Json y = row("y");
    y["device"] = host;
    const Loaded loaded(with_steps({step(twice(), {reference("input", 0)}, {reference("value", 0)}, host),
                                    step(thrice(), {reference("value", 0)}, {reference("value", 1)}),
                                    step(twice(), {reference("value", 1)}, {reference("output", 0)}, host),
                                    step(thrice(), {reference("output", 0)}, {reference("output", 1)}, host)},
                                   {row_between("h", host), row_between("g")}, {y, row("z")}),
                        far);
    aotpack::runtime::Context context(loaded.model, 1);
    std::vector<float> x = ramp(8);
    int64_t shape[2] = {2, 4};
    int64_t turned[2] = {1, 2};
    std::vector<float> wanted = chained(x);
    for (size_t i = 0; i < 8; ++i) wanted[i] = 2 * wanted[i] + static_cast<float>(i % 4 + 1);
    std::vector<float> after = wanted;
    for (size_t i = 0; i < 8; ++i) after[i] = 3 * wanted[i] + static_cast<float>(i % 4 + 1);
    for (int round = 0; round < 3; ++round) {
      const DLTensor input = host_tensor(x.data(), kFloat, shape, 2);
      const DLTensor* inputs[] = {&input};
      DLManagedTensorVersioned* outputs[2] = {};
      context.run(0, inputs, 1, outputs, 2);
      CHECK(outputs[0]->dl_tensor.device.device_type == kDLCPU);
      const auto* on_host = static_cast<const float*>(outputs[0]->dl_tensor.data);
      CHECK(std::vector<float>(on_host, on_host + 8) == wanted);
      outputs[0]->deleter(outputs[0]);
      CHECK(download<float>(outputs[1]) == after);  // made on the host, and belongs on the device
      CHECK(live_bytes(context) == 0);
      std::vector<float> first(8), second(8);
      const DLTensor buffers[] = {host_tensor(first.data(), kFloat, shape, 2),
                                  host_tensor(second.data(), kFloat, shape, 2, turned)};
      const DLTensor* destinations[] = {&buffers[0], &buffers[1]};
      context.run_into(0, inputs, 1, destinations, 2);
      CHECK(first == wanted);
      CHECK(second[0] == after[0]);
      CHECK(second[2] == after[1]);
      CHECK(live_bytes(context) == 0);
    }
  }
  CHECK(far.live == 0);
}

TEST_CASE("steps on two devices: inputs that are written to, state, failures") {
  FarDevice far;
  {
    const Json host;
    // x lies on the device; a step on the host writes to it, and one on the device reads it afterwards.
    const Loaded loaded(
        with_steps({step(mutate(), {reference("input", 0)}, {reference("output", 0)}, host),
                    step(failing(), {reference("input", 1)}, {reference("output", 1)}, host),
                    step(alias(), {reference("input", 0)},
                         {reference("value", 0), reference("output", 2), reference("value", 1), reference("value", 2),
                          reference("value", 3)},
                         host)},
                   {intermediate("a", "float32", {4}), intermediate("b", "float32", {4}),
                    intermediate("c", "float32", {4}, host), intermediate("d", "float32", {3, 2})},
                   {value("count", "int64", {2}), value("f", "float32", {2}), value("seen", "float32", {4})},
                   {value("x", "float32", {4}, {}, true), value("mode", "int64", {})}),
        far);
    aotpack::runtime::Context context(loaded.model, 1);
    float x[8] = {1, -1, 2, -1, 3, -1, 4, -1};
    int64_t mode = 9;
    int64_t four[1] = {4};
    int64_t stride[1] = {2};
    const DLTensor tensors[] = {host_tensor(x, kFloat, four, 1, stride), host_tensor(&mode, {kDLInt, 64, 1}, four, 0)};
    const DLTensor* inputs[] = {&tensors[0], &tensors[1]};
    DLManagedTensorVersioned* outputs[3] = {};
    const auto run = [&] { context.run(0, inputs, 2, outputs, 3); };
    run();
    CHECK(download<int64_t>(outputs[0])[0] == 101);
    CHECK(download<float>(outputs[1]) == std::vector<float>{1, 2});
    CHECK(download<float>(outputs[2]) == std::vector<float>{2, 3, 4, 5});
    CHECK(std::vector<float>(x, x + 8) == std::vector<float>{2, -1, 3, -1, 4, -1, 5, -1});
    // State lies where the step runs that reads it.
    DLManagedTensorVersioned* count = context.get_state(0);
    CHECK(count->dl_tensor.device.device_type == kDLCPU);
    CHECK(*static_cast<const int64_t*>(count->dl_tensor.data) == 101);
    count->deleter(count);
    int64_t seven = 7;
    const DLTensor given = host_tensor(&seven, {kDLInt, 64, 1}, four, 0);
    const DLTensor* values[] = {&given};
    const char* names[] = {"count"};
    context.load_state(names, values, 1);
    const size_t kept = live_bytes(context);  // the state
    mode = 0;
    outputs[0] = nullptr;
    CHECK_THROWS_AS(run(), aotpack::runtime::Error);
    CHECK(outputs[0] == nullptr);
    CHECK(live_bytes(context) == kept);
    mode = 9;
    run();
    CHECK(download<int64_t>(outputs[0])[0] == 9);
    outputs[1]->deleter(outputs[1]);
    outputs[2]->deleter(outputs[2]);
    context.reset();
    CHECK(live_bytes(context) == 0);
    run();
    CHECK(download<int64_t>(outputs[0])[0] == 101);
    outputs[1]->deleter(outputs[1]);
    outputs[2]->deleter(outputs[2]);
  }
  CHECK(far.live == 0);
}

TEST_CASE("steps on two devices: an input that occurs twice in a step is copied once") {
  FarDevice far;
  {
    const Json host;
    const Loaded loaded(
        with_steps({step(same(), {reference("input", 0), reference("input", 0)}, {reference("output", 0)}, host)}, {},
                   {value("y", "float32", {4})}, {value("x", "float32", {4}, {}, true)}),
        far);
    aotpack::runtime::Context context(loaded.model, 1);
    std::vector<float> x = {1, 2, 3, 4};
    int64_t four[1] = {4};
    const DLTensor input = host_tensor(x.data(), kFloat, four, 1);
    const DLTensor* inputs[] = {&input};
    DLManagedTensorVersioned* output = nullptr;
    context.run(0, inputs, 1, &output, 1);
    CHECK(download<float>(output) == std::vector<float>{2, 3, 4, 5});
    CHECK(x == std::vector<float>{2, 3, 4, 5});
    CHECK(live_bytes(context) == 0);
  }
  CHECK(far.live == 0);
}
