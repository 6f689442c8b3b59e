// Files that change while they are loaded, and afterwards.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "fixtures.h"
#include "host/sealed_file.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Load;
using aotpack::Model;
using aotpack::TensorView;
using aotpack::Verify;
using aotpack::runtime::Bytes;
using aotpack::runtime::MemorySource;
using aotpack::runtime::SealedFile;

namespace {

Bytes as_bytes(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

SealedFile sealed(const std::string& text, SealedFile::Use use = SealedFile::Use::kData) {
  return SealedFile(MemorySource(as_bytes(text)), 0, text.size(), use);
}

float affine(Context& context) {
  const float x[4] = {1, 1, 1, 1};
  return context.run({TensorView(x, {1, 4})})[0].data<float>()[3];
}

// Keeps doing something on another thread until it is destroyed.
class Beside {
 public:
  template <typename Body>
  explicit Beside(Body body)
      : thread_([this, body] {
          for (size_t round = 0; !stop_; ++round) body(round);
        }) {}
  ~Beside() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// In place, as `cp` over a file does.
void overwrite(int fd, const std::string& bytes, size_t offset = 0) {
  size_t at = 0;
  while (at < bytes.size()) {
    const ssize_t count = ::pwrite(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(offset + at));
    if (count <= 0) return;
    at += static_cast<size_t>(count);
  }
}

}  // namespace

TEST_CASE("a sealed file cannot be changed by anyone") {
  for (const auto use : {SealedFile::Use::kData, SealedFile::Use::kCode}) {
    const std::string text(100000, 'x');
    const SealedFile file = sealed(text, use);
    CHECK(file.hashes().sha256 == aotpack::runtime::sha256(as_bytes(text)));
    CHECK(file.hashes().crc == aotpack::runtime::crc32(as_bytes(text)));
    char byte = 'y';
    CHECK(::pwrite(file.fd(), &byte, 1, 0) < 0);
    CHECK(::pwrite(file.fd(), &byte, 1, 100000) < 0);
    CHECK(::ftruncate(file.fd(), 5) != 0);
    CHECK(::ftruncate(file.fd(), 200000) != 0);
    CHECK(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), 0) == MAP_FAILED);
    CHECK(::fcntl(file.fd(), F_ADD_SEALS, 0) != 0);
    // Also through another description of the same file.
    const int again = ::open(("/proc/self/fd/" + std::to_string(file.fd())).c_str(), O_RDWR | O_CLOEXEC);
    if (again >= 0) {
      CHECK(::pwrite(again, &byte, 1, 0) < 0);
      ::close(again);
    }
    CHECK(file.hashes().sha256 == aotpack::runtime::sha256(as_bytes(text)));
  }
  CHECK(sealed("").hashes().sha256 == aotpack::runtime::sha256({}));
}

TEST_CASE("code that changes between check and use is never executed") {
  ArchiveWriter writer = affine_archive();
  std::string intruder = read_bytes(MODULE_intruder);
  std::string& code = writer.files[1].bytes;
  // Of one size, and long enough that the check takes a while.
  const size_t size = std::max(code.size(), intruder.size()) + (size_t{1} << 20);
  code.resize(size);
  intruder.resize(size);
  Layout layout;
  const std::string bytes = writer.build(&layout);
  const TempFile file(bytes);
  const std::string good = code;
  const uint64_t at = layout.entries[2].data;
  ::unsetenv("AOTPACK_TEST_INTRUDER");
  const int fd = ::open(file.path().c_str(), O_WRONLY | O_CLOEXEC);
  REQUIRE(fd >= 0);
  int loaded = 0;
  int refused = 0;
  {
    const Beside beside([&](size_t round) {
      overwrite(fd, (round % 2 == 0 ? intruder : good).substr(0, size - (size_t{1} << 20)), at);
      std::this_thread::sleep_for(std::chrono::microseconds(200 + round * 7 % 900));
    });
    for (int round = 0; round < 100; ++round) {
      try {
        Model::load(file.path());
        ++loaded;
      } catch (const aotpack::Error& error) {
        CHECK(error.code() == AOTPACK_TAMPERED_ARCHIVE);
        ++refused;
      }
      if (std::getenv("AOTPACK_TEST_INTRUDER") != nullptr) break;
    }
  }
  ::close(fd);
  CHECK(std::getenv("AOTPACK_TEST_INTRUDER") == nullptr);
  CHECK(refused > 0);  // else the code did not change at all
  MESSAGE(loaded << " loads, " << refused << " refused");
}

TEST_CASE("a file that is shortened while it is loaded is an error") {
  const ArchiveWriter writer = updatable_archive();  // with weights of a megabyte
  const std::string bytes = writer.build();
  const TempFile file(bytes);
  int loaded = 0;
  int refused = 0;
  {
    const Beside beside([&](size_t round) {
      // What `cp` does: to nothing, then piece by piece.
      const int fd = ::open(file.path().c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
      for (size_t at = 0; at < bytes.size(); at += 200000 + round) overwrite(fd, bytes.substr(at, 200000 + round), at);
      ::close(fd);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
    });
    for (int round = 0; round < 200; ++round) {
      const Verify verify = round % 2 == 0 ? Verify::kFull : Verify::kCode;
      const Load mode = round % 3 == 0 ? Load::kCopy : Load::kMap;
      try {
        const Model model = Model::load(file.path(), verify, mode);
        ++loaded;
        if (mode != Load::kCopy || verify != Verify::kFull) continue;
        float x[4] = {};
        Context context(model);
        CHECK(context.run({TensorView(x, {1, 4})})[1].data<float>()[3] == 4);
      } catch (const aotpack::Error& error) {
        const bool named = error.code() >= AOTPACK_FOREIGN_ARCHIVE && error.code() <= AOTPACK_TAMPERED_ARCHIVE;
        CHECK_MESSAGE(named, error.what());
        ++refused;
      }
    }
  }
  MESSAGE(loaded << " loads, " << refused << " refused");
}

TEST_CASE("a copy does not depend on the file any more") {
  for (const Verify verify : {Verify::kCode, Verify::kFull}) {
    const ArchiveWriter writer = updatable_archive();
    const TempFile file(writer);
    const Model model = Model::load(file.path(), verify, Load::kCopy);
    REQUIRE(::truncate(file.path().c_str(), 0) == 0);
    Context context(model);
    const Context untouched(model);
    float x[4] = {1, 1, 1, 1};
    for (int round = 1; round <= 3; ++round) {
      const auto outputs = context.run({TensorView(x, {1, 4})});
      CHECK(outputs[1].data<float>()[3] == 4);
      CHECK(outputs[3].data<int64_t>()[0] == 100 + round);
      CHECK(outputs[4].data<float>()[0] == 0.5f + static_cast<float>(round));  // a mapped copy of its own
    }
    context.reset();
    CHECK(context.run({TensorView(x, {1, 4})})[4].data<float>()[0] == 1.5f);
  }
}

TEST_CASE("a mapped file that is replaced by a rename goes on being used") {
  const TempFile file(affine_archive());
  Context context(Model::load(file.path(), Verify::kCode, Load::kMap));
  const TempFile next(std::string("something else"));
  REQUIRE(std::rename(next.path().c_str(), file.path().c_str()) == 0);
  CHECK(affine(context) == 6);
  std::ofstream(next.path()) << "for its destructor";
}

TEST_CASE("AOTPACK_LOAD is the default") {
  const TempFile file(affine_archive());
  const auto survives = [&](Load mode) {
    const TempFile copy(read_bytes(file.path()));
    const Model model = Model::load(copy.path(), Verify::kCode, mode);
    // Whether the file is behind the mapping: a shared page shows what is written to it.
    const size_t weights = 4096;
    copy.poke(weights, 0);
    copy.poke(weights + 3, 0);
    copy.poke(weights + 2, 0);
    Context context(model);
    (void)affine(context);
    std::ifstream maps("/proc/self/maps");
    const std::string text((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
    return text.find(copy.path()) == std::string::npos;
  };
  ::unsetenv("AOTPACK_LOAD");
  CHECK_FALSE(survives(Load::kDefault));
  CHECK(survives(Load::kCopy));
  ::setenv("AOTPACK_LOAD", "copy", 1);
  CHECK(survives(Load::kDefault));
  CHECK_FALSE(survives(Load::kMap));
  ::setenv("AOTPACK_LOAD", "map", 1);
  CHECK_FALSE(survives(Load::kDefault));
  ::setenv("AOTPACK_LOAD", "", 1);
  CHECK_FALSE(survives(Load::kDefault));
  ::setenv("AOTPACK_LOAD", "yes", 1);
  CHECK(message_of(error_of([&] { Model::load(file.path()); })) == "AOTPACK_LOAD must be 'map' or 'copy', got 'yes'");
  CHECK_NOTHROW(Model::load(file.path(), Verify::kCode, Load::kCopy));
  ::unsetenv("AOTPACK_LOAD");
}

TEST_CASE("load options of callers that do not know mode and device") {
  const TempFile file(affine_archive());
  aotpack_load_options options;
  std::memset(&options, 0xFF, sizeof options);
  options.struct_size = 12;
  options.verify = AOTPACK_VERIFY_CODE;
  aotpack_model* model = nullptr;
  CHECK(aotpack_model_load(file.path().c_str(), &options, &model) == nullptr);
  aotpack_model_release(model);
  options.struct_size = sizeof options;
  aotpack_status* status = aotpack_model_load(file.path().c_str(), &options, &model);
  CHECK(aotpack_status_code(status) == AOTPACK_INVALID_ARGUMENT);
  CHECK(std::string(aotpack_status_message(status)) == "aotpack_load_options.mode is unknown");
  aotpack_status_release(status);
}

TEST_CASE("a path with a zero character is no path") {
  const TempFile file(affine_archive());
  const std::string path = file.path() + std::string(1, '\0') + "x";
  CHECK(error_of([&] { Model::load(path); }).code() == AOTPACK_INVALID_ARGUMENT);
}
