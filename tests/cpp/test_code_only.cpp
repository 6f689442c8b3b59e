// Archives without the bytes of their weights: read, verified, and loaded by nobody.
#include <doctest/doctest.h>

#include <functional>

#include "archive/archive.h"
#include "base/status.h"
#include "fixtures.h"

using namespace aotpack::tests;
using aotpack::Error;
using aotpack::Model;
using aotpack::Verify;
namespace runtime = aotpack::runtime;

namespace {

// The constants are weight, gain, bias, packed (a result), matrix, count (state), bulk (state).
ArchiveWriter code_only_archive() {
  ArchiveWriter writer = updatable_archive();
  writer.files[0].bytes.clear();
  for (Json& constant : writer.manifest["constants"].items()) {
    for (const char* key : {"file", "offset", "sha256"}) constant[key] = Json();
  }
  return writer;
}

aotpack_code load(const ArchiveWriter& writer, std::string* message, Verify verify = Verify::kCode) {
  const TempFile file(writer);
  try {
    Model::load(file.path(), verify);
  } catch (const Error& error) {
    *message = error.what();
    return error.code();
  }
  return AOTPACK_OK;
}

std::string malformed(const std::function<void(Json&)>& change) {
  ArchiveWriter writer = code_only_archive();
  change(writer.manifest);
  std::string message;
  CHECK(load(writer, &message) == AOTPACK_MALFORMED_ARCHIVE);
  return message.substr(message.find("manifest."));
}

}  // namespace

TEST_CASE("an archive without weights is read, and does not load") {
  const TempFile file(code_only_archive());
  const runtime::Archive archive(file.path().c_str(), AOTPACK_VERIFY_FULL, runtime::FileMap::Mode::kMap);
  CHECK(archive.manifest().code_only);
  CHECK(archive.manifest().constants[3].absent);
  CHECK(archive.manifest().constants[3].nbytes == 16);
  for (const Verify verify : {Verify::kCode, Verify::kFull}) {
    std::string message;
    CHECK(load(code_only_archive(), &message, verify) == AOTPACK_MISSING_WEIGHTS);
    CHECK(message.find("the archive is code-only: it contains no weights; `aotpack pack ") != std::string::npos);
  }
}

TEST_CASE("what has no bytes is what depends on the weights, all of it") {
  CHECK(malformed([](Json& m) { m["constants"][0]["offset"] = 0; }) ==
        "manifest.constants[0].offset: expected null, as 'file' is");
  CHECK(malformed([](Json& m) { m["constants"][0]["sha256"] = std::string(64, '0'); }) ==
        "manifest.constants[0].sha256: expected null, as 'file' is");
  CHECK(malformed([](Json& m) { m["constants"][0]["nbytes"] = 20; }) ==
        "manifest.constants[0]: shape and stride reach over 16 bytes, nbytes is 20");
  CHECK(malformed([](Json& m) {
          m["format_version"] = 6;
          m.erase("description");
        }) == "manifest.constants[0].file: expected an integer, got null");
  CHECK(malformed([](Json& m) { m["weights"] = Json(); }) ==
        "manifest.constants[0]: has no bytes, but does not depend on the weights");
  CHECK(malformed([](Json& m) { m["weights"]["fold"] = Json(); }) ==
        "manifest.constants[3]: has no bytes, but does not depend on the weights");
  CHECK(malformed([](Json& m) {
          Json& bias = m["constants"][2];
          bias["file"] = 0;
          bias["offset"] = 0;
          bias["sha256"] = std::string(64, '0');
          bias["nbytes"] = 0;
          bias["shape"] = Json::array({0});
          m["weights"]["tensors"][2]["shape"] = Json::array({0});
          m["weights"]["tensors"][3]["shape"] = Json::array({0});
        }) == "manifest.constants[2]: has bytes, but others that depend on the weights have none");
}
