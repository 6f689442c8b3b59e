// Which ways kernels go: what an archive says of this processor, and what a context is told.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/status.h"
#include "fixtures.h"
#include "manifest/tuning.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::TensorView;

namespace {

std::string choice(const std::string& site, uint32_t number) {
  return "{\"choice\":" + std::to_string(number) + ",\"kernel\":\"adder\",\"numbers\":[4,5],\"site\":\"" + site +
         "\",\"speedup\":1.5}";
}

std::string record(const std::string& processor, int threads, const std::string& choices,
                   const std::string& target = "x86-64") {
  return "{\"choices\":[" + choices + "],\"processor\":\"" + processor + "\",\"target\":\"" + target +
         "\",\"threads\":" + std::to_string(threads) + "}";
}

std::string tuning(const std::string& records) { return "{\"tuning\":[" + records + "]}\n"; }

const std::string kSeven = "0000000000000007";

Model tuned_model(const std::string& text) {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_tuned)}};
  if (!text.empty()) writer.files.push_back({"tuning/tuning.json", text});
  writer.manifest = manifest({}, {entry("forward", {}, {value("x", "float32", {})}, {value("y", "float32", {})},
                                        {variant("default", {}, {module(0, {}, {"alloc", "free"})})})});
  return load(writer);
}

float call(Context& context) {
  float x = 1;
  return *context.run({TensorView(&x, {})})[0].data<float>();
}

float with_threads(const Model& model, int32_t threads) {
  Context context(model);
  context.set_num_threads(threads);
  return call(context);
}

aotpack_status* set(Context& context, const std::vector<aotpack_choice>& choices, bool record) {
  return aotpack_context_set_choices(context.handle(), choices.data(), choices.size(), record);
}

}  // namespace

TEST_CASE("tuning: an archive's choices for this processor, its target and the number of threads") {
  const std::string here = aotpack_host_processor();
  REQUIRE(!here.empty());
  const Model model = tuned_model(tuning(record(here, 1, choice(kSeven, 3)) + "," + record(here, 2, choice(kSeven, 5)) +
                                         "," + record(here, 1, choice(kSeven, 6), "x86-64-v4") + "," +
                                         record("another", 1, choice(kSeven, 9))));
  CHECK(with_threads(model, 1) == 4);
  CHECK(with_threads(model, 2) == 6);
  CHECK(with_threads(tuned_model(tuning(record("another", 1, choice(kSeven, 9)))), 1) == 1);
  CHECK(with_threads(tuned_model(tuning(record(here, 3, choice(kSeven, 9)))), 1) == 1);
  CHECK(with_threads(tuned_model(tuning(record(here, 1, choice("0000000000000008", 9)))), 1) == 1);
  CHECK(with_threads(tuned_model(tuning("")), 1) == 1);
  CHECK(with_threads(tuned_model(""), 1) == 1);
}

TEST_CASE("tuning: what a context is told goes before the archive, and is recorded") {
  const Model model = tuned_model(tuning(record(aotpack_host_processor(), 1, choice(kSeven, 3))));
  Context context(model);
  context.set_num_threads(1);
  CHECK(call(context) == 4);
  CHECK(aotpack_context_site_count(context.handle()) == 0);
  REQUIRE(set(context, {{9, 1, 0}, {7, 8, 0}}, true) == nullptr);
  CHECK(call(context) == 9);
  CHECK(call(context) == 9);
  REQUIRE(aotpack_context_site_count(context.handle()) == 1);
  const aotpack_site* site = aotpack_context_site(context.handle(), 0);
  CHECK(site->struct_size == sizeof(aotpack_site));
  CHECK(site->site == 7);
  CHECK(std::string(site->kernel) == "adder");
  CHECK(std::string(site->target) == "x86-64");
  REQUIRE(site->num_numbers == 2);
  CHECK(site->numbers[0] == 4);
  CHECK(site->numbers[1] == 5);
  CHECK(site->choice == 8);
  CHECK(site->positions[0] == 3);
  CHECK(site->positions[1] == 2);
  CHECK(site->positions[2] == 0);
  CHECK(site->nanoseconds == 42);
  CHECK(aotpack_context_site(context.handle(), 1) == nullptr);
  REQUIRE(set(context, {}, false) == nullptr);
  CHECK(call(context) == 1);
  CHECK(aotpack_context_site_count(context.handle()) == 0);
  REQUIRE(aotpack_context_clear_choices(context.handle()) == nullptr);
  CHECK(call(context) == 4);
}

TEST_CASE("tuning: arguments that are wrong") {
  Context context(tuned_model(""));
  const auto refused = [](aotpack_status* status) {
    REQUIRE(status != nullptr);
    CHECK(aotpack_status_code(status) == AOTPACK_INVALID_ARGUMENT);
    aotpack_status_release(status);
  };
  refused(set(context, {{7, 1, 0}, {7, 2, 0}}, false));
  refused(aotpack_context_set_choices(context.handle(), nullptr, 1, false));
  refused(aotpack_context_set_choices(nullptr, nullptr, 0, false));
  refused(aotpack_context_clear_choices(nullptr));
  CHECK(aotpack_context_site_count(nullptr) == 0);
  CHECK(aotpack_context_site(nullptr, 0) == nullptr);
  CHECK(call(context) == 1);
}

TEST_CASE("tuning: a file that is not one") {
  using aotpack::runtime::parse_tuning;
  const auto fails = [](const std::string& text, const std::string& what) {
    CAPTURE(text);
    try {
      parse_tuning(text);
      FAIL("it was read");
    } catch (const aotpack::runtime::Error& error) {
      CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
      CHECK(error.message().find(what) != std::string::npos);
    }
  };
  CHECK(parse_tuning(tuning(record("p", 1, choice("00000000000000ff", 7))))[0].choices[0].site == 255);
  fails("", "");
  fails("[]\n", "");
  fails("{\"tuning\":7}\n", "tuning");
  fails(tuning(record("p", 0, "")), "threads");
  fails(tuning(record("", 1, "")), "processor");
  fails(tuning(record("p", 1, "") + "," + record("p", 1, "")), "twice");
  fails(tuning(record("p", 1, choice("7", 1))), "hex");
  fails(tuning(record("p", 1, choice("000000000000000G", 1))), "hex");
  fails(tuning(record("p", 1, choice("00000000000000FF", 1))), "hex");
  fails(tuning(record("p", 1, choice("-000000000000007", 1))), "hex");
  fails(tuning(record("p", 1, choice(kSeven, 1) + "," + choice(kSeven, 1))), "ascending");
  fails(tuning(record("p", 1, choice("0000000000000008", 1) + "," + choice(kSeven, 1))), "ascending");
  fails(tuning(record("p", 1, "{\"choice\":1}")), "");
}

TEST_CASE("tuning: a damaged file is told") {
  ArchiveWriter writer;
  const std::string text = tuning(record(aotpack_host_processor(), 1, choice(kSeven, 3)));
  writer.files = {{"modules/x86-64/forward", read_bytes(MODULE_tuned)}, {"tuning/tuning.json", text}};
  writer.manifest = manifest({}, {entry("forward", {}, {value("x", "float32", {})}, {value("y", "float32", {})},
                                        {variant("default", {}, {module(0, {}, {"alloc", "free"})})})});
  const TempFile file(writer);
  std::string bytes = read_bytes(file.path());
  const std::string needle = "\"choice\":3";
  const size_t at = bytes.find(needle);
  REQUIRE(at != std::string::npos);
  bytes[at + needle.size() - 1] = '4';
  const aotpack::Error error = load_error(bytes);
  CHECK(error.code() == AOTPACK_TAMPERED_ARCHIVE);
  CHECK(message_of(error).find("tuning/tuning.json") != std::string::npos);
}
