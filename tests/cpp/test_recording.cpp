// Calls of modules that are recorded: what is an address, and where memory lies.
#include <doctest/doctest.h>

#include "base/status.h"
#include "hal/recorder.h"
#include "hal/recording.h"

using namespace aotpack::runtime;

namespace {

// Knows kernels by the sizes of their arguments, and does nothing else.
class PaperDevice final : public Device {
 public:
  explicit PaperDevice(std::vector<uint32_t> sizes) : sizes_(std::move(sizes)) {}
  DLDevice id() const noexcept override { return {kDLCUDA, 0}; }
  std::string description() const override { return "paper"; }
  bool is_host() const noexcept override { return false; }
  const std::vector<std::string_view>& targets() const override { return targets_; }
  std::string missing(std::string_view) const override { return ""; }
  void* allocate(size_t, size_t) noexcept override { return nullptr; }
  void free(void*) noexcept override {}
  std::unique_ptr<Stream> make_stream() override { return nullptr; }
  std::unique_ptr<Stream> borrow_stream(void*) override { return nullptr; }
  std::unique_ptr<Executable> load(ExecutableSource) override { return nullptr; }
  bool argument_sizes(const aotpack_module_launch&, std::vector<uint32_t>* out) override {
    *out = sizes_;
    return !sizes_.empty();
  }

 private:
  std::vector<std::string_view> targets_;
  std::vector<uint32_t> sizes_;
};

using Round = Recorder::Round;

template <typename Call>
std::optional<Recording> record(Device& device, size_t num_inputs, Call call) {
  Recorder first(device, num_inputs, Round::kFirst), second(device, num_inputs, Round::kSecond);
  call(first);
  call(second);
  return combine(first, second);
}

void launch(Recorder& recorder, std::vector<void*> arguments, uint32_t blocks = 1) {
  aotpack_module_launch launch{};
  launch.kernel = "k";
  launch.grid[0] = blocks;
  launch.grid[1] = launch.grid[2] = 1;
  launch.arguments = arguments.data();
  launch.num_arguments = static_cast<uint32_t>(arguments.size());
  recorder.launch(launch);
}

char* at(void* memory, size_t offset) { return static_cast<char*>(memory) + offset; }

void return_block(Recorder& recorder, void* block, size_t offset = 0) {
  aotpack_module_tensor output{};
  output.data = at(block, offset);
  output.block = block;
  recorder.outputs.push_back(output);
}

}  // namespace

TEST_CASE("recording: addresses are found in arguments of any size, and numbers are none") {
  struct Pair {
    void* address;
    int64_t number;
  };
  PaperDevice device({8, 4, 16, 8});
  const std::optional<Recording> made = record(device, 2, [](Recorder& recorder) {
    // A number that looks like an address of the first round.
    int64_t number = (int64_t{1} << 60) + 4096;
    int32_t small = -1;
    char* inside = at(recorder.input(1), 4096);
    Pair pair{recorder.input(0), 7};
    launch(recorder, {&inside, &small, &pair, &number});
    launch(recorder, {&inside, &small, &pair, &number}, 0);  // nothing runs
  });
  REQUIRE(made);
  CHECK(made->operations.size() == 1);
  CHECK(made->argument_words == std::vector<uint32_t>{0, 1, 2, 4});
  REQUIRE(made->relocations.size() == 2);
  CHECK(made->relocations[0].word == 0);
  CHECK(made->relocations[0].slot == 1);
  CHECK(made->relocations[0].offset == 4096);
  CHECK(made->relocations[1].word == 2);
  CHECK(made->relocations[1].slot == 0);
  CHECK(made->words[1] == 0xFFFFFFFF);
  CHECK(made->words[3] == 7);
  CHECK(made->words[4] == (uint64_t{1} << 60) + 4096);
}

TEST_CASE("recording: memory that is freed is used again, and outputs keep their own") {
  PaperDevice device({});
  const std::optional<Recording> made = record(device, 1, [](Recorder& recorder) {
    void* a = recorder.allocate(1000);
    void* out = recorder.allocate(64);
    recorder.copy(a, recorder.input(0), 1000);
    void* b = recorder.allocate(0);
    recorder.free(a);
    void* c = recorder.allocate(500);
    void* d = recorder.allocate(256);
    recorder.copy(at(c, 8), recorder.input(0), 8);
    recorder.fill(d, 1, 4, 64);
    recorder.copy(b, out, 0);  // nothing runs
    return_block(recorder, out, 16);
    return_block(recorder, out);
  });
  REQUIRE(made);
  CHECK(made->arena_bytes == 1024 + 256);
  CHECK(made->kept_bytes == std::vector<size_t>{64});
  CHECK(made->num_slots() == 3);
  REQUIRE(made->relocations.size() == 5);
  CHECK(made->relocations[0].slot == made->arena_slot());
  CHECK(made->relocations[2].offset == 8);    // c where a was
  CHECK(made->relocations[4].offset == 512);  // d behind it
  REQUIRE(made->outputs.size() == 2);
  CHECK(made->outputs[0].data_slot == 1);
  CHECK(made->outputs[0].data_offset == 16);
  CHECK(made->outputs[1].block_slot == 1);
}

TEST_CASE("recording: what addresses do not explain is not recorded") {
  PaperDevice device({8});
  int64_t calls = 0;
  // Another value, another kernel, another size in the second round.
  CHECK_FALSE(record(device, 1, [&](Recorder& recorder) { launch(recorder, {&++calls}); }));
  CHECK_FALSE(record(device, 1, [&](Recorder& recorder) { launch(recorder, {&calls}, ++calls % 2 + 1); }));
  CHECK_FALSE(record(device, 1, [&](Recorder& recorder) { recorder.allocate(static_cast<size_t>(++calls)); }));
  CHECK_FALSE(record(device, 1, [&](Recorder& recorder) {
    if (++calls % 2 == 0) recorder.fill(recorder.input(0), 0, 1, 1);
  }));
  // The offset differs, or the address is of no object.
  CHECK_FALSE(record(device, 1, [&](Recorder& recorder) {
    char* address = at(recorder.input(0), static_cast<size_t>(++calls % 2));
    launch(recorder, {&address});
  }));
  CHECK_FALSE(record(device, 1, [&](Recorder& recorder) {
    void* beyond = recorder.input(1);
    launch(recorder, {&beyond});
  }));
  // An output in memory that was freed, or is no block.
  CHECK_FALSE(record(device, 1, [](Recorder& recorder) {
    void* block = recorder.allocate(8);
    recorder.free(block);
    return_block(recorder, block);
  }));
  CHECK_FALSE(record(device, 1, [](Recorder& recorder) { return_block(recorder, recorder.input(0)); }));
  // Memory that is freed twice, is an input's, or is too large.
  CHECK_FALSE(record(device, 1, [](Recorder& recorder) {
    void* block = recorder.allocate(8);
    recorder.free(block);
    recorder.free(block);
  }));
  CHECK_FALSE(record(device, 1, [](Recorder& recorder) { recorder.free(recorder.input(0)); }));
  CHECK_FALSE(record(device, 1, [](Recorder& recorder) { CHECK(recorder.allocate(size_t{1} << 44) == nullptr); }));
  CHECK_FALSE(record(device, 1, [](Recorder& recorder) {
    for (int i = 0; i < 70000; ++i) recorder.allocate(1);
  }));
  PaperDevice unknown({});
  CHECK_THROWS_AS(record(unknown, 1, [&](Recorder& recorder) { launch(recorder, {&calls}); }), Error);
  CHECK_THROWS_AS(record(device, 1, [](Recorder& recorder) { recorder.wait(); }), Error);
}
