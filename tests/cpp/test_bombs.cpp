// Archives that are made to cost time or memory out of proportion to their size.
#include <doctest/doctest.h>

#include <ctime>

#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Model;
using aotpack::Verify;

namespace {

// Tenths of a second, unless the work grows with the square of the size: then minutes.
constexpr double kSeconds = 15;

template <typename Body>
double seconds_of(Body body) {
  const std::clock_t begin = std::clock();
  body();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace

TEST_CASE("many dims, in inputs, ints, guards and formulas") {
  ArchiveWriter writer = affine_archive();
  Json& entry = writer.manifest["entries"][0];
  entry["goldens"] = Json::array({});
  Json& call = entry["in_spec"];
  for (int64_t i = 1; i <= 20000; ++i) {
    const std::string name = "d" + std::to_string(i);
    entry["dims"].push(dim(name, 0, Json()));
    entry["inputs"].push(value(name, "float32", {size(name), size(name, 2, i)}));
    call["args"].push(Json::object({{"kind", "tensor"}, {"index", i}}));
    call["names"].push(Json());
    entry["variants"][0]["guards"].push(guard(name, 0, Json()));
  }
  entry["variants"][0]["targets"] = targets({module_in(entry)}, 20001);
  // The manifest is right; the module has one input.
  CHECK(seconds_of([&] { CHECK(message_of(load_error(writer)).find("it has 1 inputs") != std::string::npos); }) <
        kSeconds);
}

TEST_CASE("a manifest of more values than memory should be spent on") {
  ArchiveWriter writer = affine_archive();
  std::string list = "[0";
  for (int i = 0; i < 1 << 21; ++i) list += ",0";
  writer.manifest["entries"][0]["out_spec"] = Json::raw(list + "]");
  const aotpack::Error error = load_error(writer);
  CHECK(error.code() == AOTPACK_MALFORMED_ARCHIVE);
  CHECK(message_of(error).find("more than 2097152 values") != std::string::npos);
  writer.manifest["name"] = std::string(size_t{64} << 20, 'x');
  CHECK(message_of(load_error(writer)).find("manifest.json has") != std::string::npos);
}

TEST_CASE("constants that overlap are not read again and again") {
  for (const char* dtype : {"bool", "uint8"}) {
    ArchiveWriter writer = affine_archive();
    writer.files[0].bytes = std::string(size_t{1} << 20, '\0');
    for (int64_t i = 0; i < 8000; ++i) {
      const int64_t offset = i * 64;
      Json record = constant("c" + std::to_string(i), dtype, {1}, {1}, 0, offset, "");
      record["nbytes"] = (int64_t{1} << 20) - offset;
      writer.manifest["constants"].push(record);
    }
    for (const Verify verify : {Verify::kCode, Verify::kFull}) {
      CHECK(seconds_of([&] {
              CHECK(message_of(load_error(writer, verify)).find("overlap each other more than 4 times") !=
                    std::string::npos);
            }) < kSeconds);
    }
  }
}
