// State that steps of training replace: it is read into memory at once, in pages of 2 MB.
#include <doctest/doctest.h>

#include <fstream>
#include <numeric>
#include <thread>

#include "call/fill.h"
#include "fixtures.h"
#include "hal/huge_pool.h"
#include "host/huge_memory.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::NamedTensors;
using aotpack::NamedViews;
using aotpack::Tensor;
using aotpack::TensorView;
using aotpack::runtime::CopyOfRange;
using aotpack::runtime::HugePool;
using aotpack::runtime::kHugePage;
using aotpack::runtime::map_zeros;
using aotpack::runtime::Mapping;

namespace {

Model trained_model() {
  ArchiveWriter writer = updatable_archive();
  writer.manifest["entries"][1]["name"] = "train_step";
  writer.manifest["constants"][6]["role"] = "parameter";
  return load(writer);
}

// Adds one to all of the state and returns the first value of "bulk".
float call(Context& context, const char* entry) {
  const float x[4] = {};
  return *context.run({TensorView(x, {1, 4})}, entry)[4].data<float>();
}

std::vector<float> bulk_of(Context& context) {
  const Tensor bulk = std::move(context.state()[1].second);
  return {bulk.data<float>(), bulk.data<float>() + kBulk};
}

// Resident bytes of a range.
size_t resident(const void* memory, size_t bytes) {
  size_t kilobytes = 0;
  std::ifstream maps("/proc/self/smaps");
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  std::string line;
  bool inside = false;
  while (std::getline(maps, line)) {
    size_t from = 0;
    size_t to = 0;
    size_t value = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx ", &from, &to) == 2) inside = from < begin + bytes && begin < to;
    if (inside && std::sscanf(line.c_str(), "Rss: %zu kB", &value) == 1) kilobytes += value;
  }
  return kilobytes << 10;
}

}  // namespace

TEST_CASE("a context trains from the archive's values, whatever ran before") {
  const Model model = trained_model();
  Context untouched(model, 2);
  const std::vector<float> initial = bulk_of(untouched);
  const auto check_after = [&](Context& context, float steps) {
    const std::vector<float> now = bulk_of(context);
    for (const size_t i : {size_t{0}, size_t{1}, kBulk / 2, kBulk - 1})
      CHECK(now[i] == initial[i] + (i == 0 ? steps : 0));
  };
  Context trained(model, 2);
  CHECK(call(trained, "train_step") == 1.5f);
  CHECK(call(trained, "forward") == 2.5f);
  CHECK(call(trained, "train_step") == 3.5f);
  check_after(trained, 3);
  Context evaluated(model, 2);
  CHECK(call(evaluated, "forward") == 1.5f);
  CHECK(call(evaluated, "train_step") == 2.5f);
  check_after(evaluated, 2);
  trained.reset();
  CHECK(call(trained, "forward") == 1.5f);
  CHECK(call(trained, "train_step") == 2.5f);
}

TEST_CASE("a state that is loaded or shared before the first step is what the step begins with") {
  const Model model = trained_model();
  std::vector<float> bulk(kBulk);
  std::iota(bulk.begin(), bulk.end(), 0.0f);
  const int64_t count = 7;
  const NamedViews views{{"count", TensorView(&count, {1})}, {"bulk", TensorView(bulk.data(), {kBulk})}};
  Context loaded(model, 1);
  loaded.load_state(views);
  CHECK(call(loaded, "train_step") == 1);
  CHECK(bulk_of(loaded)[kBulk - 1] == kBulk - 1);
  loaded.load_state(views);
  CHECK(call(loaded, "train_step") == 1);

  Context shared(model, 1);
  const NamedTensors before = shared.share_state();
  CHECK(call(shared, "train_step") == 1.5f);
  CHECK(*before[1].second.data<float>() == 1.5f);
  Context shared_later(model, 1);
  CHECK(call(shared_later, "train_step") == 1.5f);
  const NamedTensors after = shared_later.share_state();
  CHECK(call(shared_later, "train_step") == 2.5f);
  CHECK(*after[1].second.data<float>() == 2.5f);
}

TEST_CASE("ranges are copied by several threads; common zeros leave their destinations untouched") {
  constexpr size_t kBytes = 10 * kHugePage + 100;
  std::vector<uint8_t> values(kBytes);
  std::mt19937 random(3);
  for (size_t i = 0; i < kBytes; i += 64) values[i] = static_cast<uint8_t>(random());
  values.back() = 9;
  const std::vector<uint8_t> zeros(kBytes);
  const Mapping memory = map_zeros(8 * kBytes);
  REQUIRE(memory.data() != nullptr);
  std::vector<CopyOfRange> copies;
  for (size_t i = 0; i < 8; ++i) {
    const size_t bytes = kBytes - i * 1000;
    copies.push_back({i < 4 ? zeros.data() : values.data(), memory.data() + i * kBytes, bytes});
  }
  aotpack::runtime::fill_zeros(copies, 4);
  for (const CopyOfRange& copy : copies) CHECK(std::memcmp(copy.to, copy.from, copy.bytes) == 0);
  const Mapping untouched = map_zeros(4 * kBytes);
  for (size_t i = 0; i < 4; ++i) copies[i].to = untouched.data() + i * kBytes;
  aotpack::runtime::fill_zeros({copies.begin(), copies.begin() + 4}, 4);
  CHECK(resident(untouched.data(), 4 * kBytes) == 0);
}

TEST_CASE("blocks of a pool are aligned and apart; what is free goes back to the system") {
  HugePool pool;
  CHECK(pool.allocate(HugePool::kRegion + 1, 64) == nullptr);
  std::vector<std::pair<uint8_t*, size_t>> blocks;
  std::mt19937 random(4);
  for (size_t total = 0; total < 3 * HugePool::kRegion;) {
    const size_t bytes = 1 + random() % (size_t{3} << 20);
    auto* block = static_cast<uint8_t*>(pool.allocate(bytes, 64));
    REQUIRE(block != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(block) % 64 == 0);
    std::memset(block, static_cast<int>(blocks.size()), bytes);
    blocks.emplace_back(block, bytes);
    total += bytes;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    const auto mark = static_cast<uint8_t>(i);
    REQUIRE(std::all_of(block, block + bytes, [&](uint8_t byte) { return byte == mark; }));
  }
  // All but the first of the first region, which therefore stays.
  const auto [first, first_bytes] = blocks.front();
  for (size_t i = 1; i < blocks.size(); ++i) pool.free(blocks[i].first, blocks[i].second);
  CHECK(first[first_bytes - 1] == 0);
  CHECK(resident(first, HugePool::kRegion) <= first_bytes + kHugePage);
  pool.free(first, first_bytes);
}
