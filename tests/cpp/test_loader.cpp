#include <dirent.h>
#include <dlfcn.h>
#include <doctest/doctest.h>

#include <cstdlib>

#include "fixtures.h"
#include "host/gomp.h"

using namespace aotpack::tests;

namespace {

Json& module_of(ArchiveWriter& writer) { return module_in(writer.manifest["entries"][0]); }

int open_descriptors() {
  int count = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

void expect(const ArchiveWriter& writer, aotpack_code code, const std::string& part) {
  const aotpack::Error error = load_error(writer);
  CHECK(error.code() == code);
  CHECK_MESSAGE(message_of(error).find(part) != std::string::npos, message_of(error));
}

}  // namespace

TEST_CASE("an unknown import is named before anything of the module runs") {
  ArchiveWriter writer = affine_archive();
  writer.files[1].bytes = read_bytes(MODULE_unknown_import);
  module_of(writer)["imports"] = Json::array({"alloc", "teleport"});
  expect(writer, AOTPACK_MISSING_IMPORT,
         "entry 'forward', modules/x86-64/forward: the module imports 'teleport', which this runtime "
         "(" AOTPACK_VERSION_STRING ") does not provide; it provides alloc, free, fail, seed, mark");
}

TEST_CASE("the module has to be what the manifest says") {
  ArchiveWriter writer = affine_archive();
  module_of(writer)["imports"] = Json::array({"alloc"});
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "it has 2 imports, the manifest 1");
  module_of(writer)["imports"] = Json::array({"free", "alloc"});
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "its import 0 is not the manifest's 'free'");

  writer = affine_archive();
  module_of(writer)["constants"] = Json::array({0, 0});
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "it has 1 constants, the manifest 2");

  writer = affine_archive();
  writer.manifest["entries"][0]["goldens"] = Json::array({});
  writer.manifest["entries"][0]["inputs"].push(value("extra", "float32", {1}));
  writer.manifest["entries"][0]["variants"][0]["targets"] = targets({module_of(writer)}, 2);
  Json& call = writer.manifest["entries"][0]["in_spec"];
  call["args"].push(Json::object({{"kind", "tensor"}, {"index", 1}}));
  call["names"].push(Json());
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "it has 1 inputs, the manifest 2");

  writer = affine_archive();
  writer.manifest["entries"][0]["goldens"] = Json::array({});
  writer.manifest["entries"][0]["outputs"].push(value("extra", "float32", {1}));
  writer.manifest["entries"][0]["variants"][0]["targets"] = targets({module_of(writer)}, 1, 2);
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "it has 1 outputs, the manifest 2");

  writer = affine_archive();
  writer.files[1].bytes = read_bytes(MODULE_affine_v2);
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "its target is not the manifest's");
}

TEST_CASE("ABI versions") {
  ArchiveWriter writer = affine_archive();
  module_of(writer)["abi_version"] = 3;
  expect(writer, AOTPACK_UNSUPPORTED_VERSION, "module ABI version 3; this runtime knows versions up to 2");
  module_of(writer)["abi_version"] = 1;
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "its ABI version is not the manifest's");
  writer = affine_archive();
  writer.files[1].bytes = read_bytes(MODULE_refusing);
  expect(writer, AOTPACK_UNSUPPORTED_VERSION, "the module does not serve ABI versions up to 2");
}

TEST_CASE("bytes that are no module") {
  ArchiveWriter writer = affine_archive();
  writer.files[1].bytes = read_bytes(MODULE_no_query);
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "does not export aotpack_module_query");
  writer.files[1].bytes = "not an ELF file at all";
  expect(writer, AOTPACK_MALFORMED_ARCHIVE, "cannot load the module");
  writer.files[1].bytes = read_bytes(MODULE_affine).substr(0, 500);
  CHECK(load_error(writer).code() == AOTPACK_MALFORMED_ARCHIVE);
  writer.files[1].bytes = "";
  CHECK(load_error(writer).code() == AOTPACK_MALFORMED_ARCHIVE);
}

TEST_CASE("loading, also in vain, leaks no descriptors") {
  const TempFile good(affine_archive());
  ArchiveWriter writer = affine_archive();
  module_of(writer)["imports"] = Json::array({"alloc"});
  const TempFile bad(writer);
  aotpack::Model::load(good.path());
  const int before = open_descriptors();
  for (int i = 0; i < 50; ++i) {
    aotpack::Model::load(good.path());
    error_of([&] { aotpack::Model::load(bad.path()); });
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("models loaded side by side keep their own modules") {
  // The dynamic linker must not take one module for another because their paths look alike.
  ArchiveWriter other = affine_archive();
  other.files[0].bytes = bytes_of<float>({5, 5, 5, 5});
  other.manifest["constants"][0] = constant("w", "float32", {4}, {1}, 0, 0, other.files[0].bytes);
  other.files[1] = {"modules/x86-64-v2/forward", read_bytes(MODULE_affine_v2)};
  module_of(other)["target"] = "x86-64-v2";
  const TempFile first(affine_archive());
  const TempFile second(other);
  const float x[4] = {1, 1, 1, 1};
  const auto result = [&](const aotpack::Model& model) {
    return aotpack::Context(model).run({aotpack::TensorView(x, {1, 4})})[0].data<float>()[0];
  };
  for (int i = 0; i < 5; ++i) {
    const auto a = aotpack::Model::load(first.path());
    const auto b = aotpack::Model::load(second.path());
    const auto c = aotpack::Model::load(first.path());
    CHECK(result(a) == 3);
    CHECK(result(b) == 8);
    CHECK(result(c) == 3);
  }
}

TEST_CASE("libgomp's spinning is bounded while a module loads, unless the user has chosen") {
  using aotpack::runtime::BoundedGompSpin;
  if (void* gomp = ::dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD); gomp != nullptr) {
    ::dlclose(gomp);
    return;  // already there (a sanitizer brought it): the setting would come too late and is left alone
  }
  ::unsetenv("GOMP_SPINCOUNT");
  ::unsetenv("OMP_WAIT_POLICY");
  {
    const BoundedGompSpin bounded;
    REQUIRE(std::getenv("GOMP_SPINCOUNT") != nullptr);
    const int spins = std::atoi(std::getenv("GOMP_SPINCOUNT"));
    CHECK(spins > 0);
    CHECK(spins <= 10000);
  }
  CHECK(std::getenv("GOMP_SPINCOUNT") == nullptr);
  ::setenv("OMP_WAIT_POLICY", "active", 1);
  {
    const BoundedGompSpin bounded;
    CHECK(std::getenv("GOMP_SPINCOUNT") == nullptr);
  }
  ::unsetenv("OMP_WAIT_POLICY");
  ::setenv("GOMP_SPINCOUNT", "5", 1);
  {
    const BoundedGompSpin bounded;
    CHECK(std::string(std::getenv("GOMP_SPINCOUNT")) == "5");
  }
  CHECK(std::string(std::getenv("GOMP_SPINCOUNT")) == "5");
  ::unsetenv("GOMP_SPINCOUNT");
}
