// The state of a context in files, and calls that change it as a whole or not at all.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fixtures.h"
#include "host/new_file.h"
#include "safetensors/reader.h"
#include "safetensors/writer.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::Tensor;
using aotpack::TensorView;
using aotpack::runtime::Metadata;
using aotpack::runtime::NewFile;
using aotpack::runtime::SafetensorsReader;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/aotpack-state-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  std::string path_;
};

int64_t step(Context& context, float value = 0) {
  const float x[4] = {value, 0, 0, 0};
  return *context.run({TensorView(x, {1, 4})})[3].data<int64_t>();
}

std::pair<int64_t, float> values(Context& context) {
  const auto state = context.state();
  return {*state[0].second.data<int64_t>(), state[1].second.data<float>()[0]};
}

std::string file_of(const std::string& header, const std::string& data = "") {
  std::string bytes(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

std::string read_error(const std::string& bytes) {
  const TempFile file(bytes);
  try {
    const SafetensorsReader reader(file.path());
  } catch (const aotpack::runtime::Error& error) {
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    CHECK(error.message().rfind(file.path() + ": ", 0) == 0);
    return error.message().substr(file.path().size() + 2);
  }
  return "";
}

}  // namespace

TEST_CASE("state files: what was saved is loaded, in a context that was called and in a new one") {
  const Folder folder;
  const Model model = load(updatable_archive());
  Context first(model, 1);
  const std::string path = folder.file("state.safetensors");
  first.save_state_file(path);  // the initial values
  CHECK(step(first) == 101);
  CHECK(step(first) == 102);
  const std::string later = folder.file("later.safetensors");
  first.save_state_file(later);
  first.load_state_file(path);
  CHECK(values(first) == std::pair<int64_t, float>{100, 0.5f});
  CHECK(step(first) == 101);
  Context second(model, 1);
  second.load_state_file(later);
  CHECK(values(second) == std::pair<int64_t, float>{102, 2.5f});
  CHECK(step(second) == 103);
  CHECK(folder.count() == 2);
  const SafetensorsReader reader(later);
  CHECK(reader.metadata().at("format") == "pt");
  CHECK(reader.tensors().at("count").begin == 0);  // larger elements first: all are aligned
  CHECK(reader.tensors().at("bulk").begin == 8);
}

TEST_CASE("state files: the random generator goes on where it was") {
  const Folder folder;
  const Model model = load(seed_archive());
  const auto draw = [](Context& context) { return context.run({})[0].data<int64_t>()[1]; };
  Context first(model, 1);
  draw(first);
  first.save_state_file(folder.file("a"));
  const int64_t next = draw(first);
  Context second(model, 1);
  second.load_state_file(folder.file("a"));
  CHECK(draw(second) == next);
  // Another program's file leaves it alone.
  const TempFile foreign(file_of("{\"__metadata__\":{\"format\":\"pt\"}}"));
  first.set_seed(5);
  const int64_t expected = draw(first);
  first.set_seed(5);
  first.load_state_file(foreign.path());
  CHECK(draw(first) == expected);
  for (const char* seed : {"", "-1", "1x", "18446744073709551616"}) {
    const TempFile bad(file_of(std::string("{\"__metadata__\":{\"aotpack.seed\":\"") + seed + "\"}}"));
    CHECK(message_of(error_of([&] { first.load_state_file(bad.path()); })).find("aotpack.seed") != std::string::npos);
  }
}

TEST_CASE("state files: everything that does not match is named, and nothing changes") {
  const Model model = load(updatable_archive());
  Context context(model, 1);
  step(context);
  const auto refusal = [&](const std::string& header, const std::string& data, uint64_t flags = 0) {
    const TempFile file(file_of(header, data));
    const aotpack::Error error = error_of([&] { context.load_state_file(file.path(), flags); });
    CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
    const std::string message = message_of(error);
    CHECK(message.rfind(file.path() + ": the state is rejected: ", 0) == 0);
    return message.substr(file.path().size() + 25);
  };
  const std::string count = R"({"count":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)";
  const std::string eight(8, '\1');
  CHECK(refusal(count + R"("new":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})", eight + "x") ==
        "'bulk' is missing; there is no 'new'");
  CHECK(refusal(R"({"count":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", eight) ==
        "'count': expected int64 [1], got float32 [2]; 'bulk' is missing");
  CHECK(refusal(R"({"count":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", eight, AOTPACK_STATE_ALLOW_MISSING) ==
        "'count': expected int64 [1], got int64 []");
  CHECK(values(context) == std::pair<int64_t, float>{101, 1.5f});
  // What may be missing keeps its value, in a context that was called and in a new one.
  const TempFile part(
      file_of(count + R"("new":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})", std::string("\7\0\0\0\0\0\0\0x", 9)));
  const uint64_t lenient = AOTPACK_STATE_ALLOW_MISSING | AOTPACK_STATE_ALLOW_UNEXPECTED;
  CHECK_THROWS(context.load_state_file(part.path(), AOTPACK_STATE_ALLOW_MISSING));
  context.load_state_file(part.path(), lenient);
  CHECK(values(context) == std::pair<int64_t, float>{7, 1.5f});
  Context fresh(model, 1);
  fresh.load_state_file(part.path(), lenient);
  CHECK(values(fresh) == std::pair<int64_t, float>{7, 0.5f});
  CHECK(step(fresh) == 8);
  CHECK(error_of([&] { context.load_state_file(part.path(), 4); }).code() == AOTPACK_INVALID_ARGUMENT);
  CHECK(error_of([&] { context.load_state_file("/nonexistent/x"); }).code() == AOTPACK_NOT_FOUND);
  CHECK(error_of([&] { context.load_state_file("/tmp"); }).code() == AOTPACK_IO_ERROR);
}

TEST_CASE("state files: malformed files are refused with the reason") {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"a\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
  };
  CHECK(read_error("1234567") == "7 bytes are not a safetensors file");
  CHECK(read_error(std::string(8, '\xff')).find("at most 100000000 are allowed") != std::string::npos);
  CHECK(read_error(file_of("{}").substr(0, 9)) == "a header of 2 bytes in a file of 9");
  CHECK(read_error(file_of("")) == "the header does not begin with an object");
  CHECK(read_error(file_of(" {}")) == "the header does not begin with an object");
  CHECK(read_error(file_of("{\"\xff\":1}")).find("not UTF-8") != std::string::npos);
  CHECK(read_error(file_of("{\"\xed\xa0\x80\":1}")).find("not UTF-8") != std::string::npos);
  CHECK(read_error(file_of(R"({"\ud800":1})")).find("lone surrogate") != std::string::npos);
  CHECK(read_error(file_of(R"({"a":1,"a":1})")).find("a key twice in an object, 'a'") != std::string::npos);
  CHECK(read_error(file_of("{}x")).find("expected the end") != std::string::npos);
  CHECK(read_error(file_of(std::string(1000, '[').insert(0, "{\"a\":"))).find("nested") != std::string::npos);
  CHECK(read_error(file_of(R"({"__metadata__":{"a":1}})")) == "__metadata__ must be an object of strings");
  CHECK(read_error(file_of(R"({"a":{"dtype":"U8","shape":[]}})")) ==
        "tensor 'a' must have the keys dtype, shape and data_offsets");
  CHECK(read_error(file_of(tensor("Q8", "[1]", "[0,1]"), "x")) == "tensor 'a' has an unknown dtype, 'Q8'");
  CHECK(read_error(file_of(tensor("U8", "[-1]", "[0,1]"), "x")) ==
        "tensor 'a' has a shape that is not a list of sizes");
  CHECK(read_error(file_of(tensor("U8", "[4294967296,4294967296]", "[0,1]"), "x")).find("63 bits") !=
        std::string::npos);
  CHECK(read_error(file_of(tensor("U8", "[1]", "[1,0]"), "x")).find("in order") != std::string::npos);
  CHECK(read_error(file_of(tensor("U8", "[2]", "[0,1]"), "x")) == "tensor 'a' has 1 bytes; dtype and shape make 2");
  CHECK(read_error(file_of(tensor("U8", "[1]", "[1,2]"), "xy")) == "no tensor has the bytes 0 to 1 of the data");
  CHECK(read_error(file_of(tensor("U8", "[2]", "[0,2]"), "x")).find("ends at 2, the file's at 1") != std::string::npos);
  CHECK(read_error(file_of(tensor("U8", "[1]", "[0,1]"), "xy")) == "1 bytes follow the last tensor");
  const std::string two = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                          R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})";
  CHECK(read_error(file_of(two, "xyz")) == "the data of tensor 'b' begins within that of another");
  // Well-formed: white space, escapes, UTF-8, empty tensors, sizes beyond an empty one.
  CHECK(read_error(file_of("{ \"\\u00e9 \xc3\xa9\" : {\"shape\" : [ 0 , 9223372036854775807, 3 ],\n\"dtype\":\"F64\","
                           "\"data_offsets\":[0,0]} }  ")) == "");
}

TEST_CASE("state files: a mutated file is read or refused") {
  const Folder folder;
  const std::vector<int64_t> shape{2, 3};
  const std::vector<int64_t> none;
  const std::string names[] = {"weight", "s\"\\\n\xc3\xa9"};
  const auto* f64 = aotpack::runtime::find_dtype("float64");
  const auto* boolean = aotpack::runtime::find_dtype("bool");
  const double data[6] = {1, 2, 3, 4, 5, 6};
  aotpack::runtime::write_safetensors(folder.file("a"), {{&names[1], boolean, &none}, {&names[0], f64, &shape}},
                                      {{"format", "pt"}}, [&](size_t) { return data; });
  const std::string good = read_bytes(folder.file("a"));
  {
    const SafetensorsReader reader(folder.file("a"));
    REQUIRE(reader.tensors().size() == 2);
    double read[6];
    reader.read(reader.tensors().at("weight"), read);
    CHECK(std::equal(data, data + 6, read));
    CHECK(reader.tensors().at(names[1]).shape.empty());
  }
  std::mt19937 random(1);
  size_t refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (unsigned i = random() % 3 + 1; i-- > 0;) {
      const size_t at = random() % bytes.size();
      if (random() % 3 == 0) {
        bytes.erase(at, random() % 8 + 1);
      } else if (random() % 2 == 0) {
        bytes.insert(at, 1, "{}[]\",:0-9\\e"[random() % 12]);
      } else {
        bytes[at] = static_cast<char>(random());
      }
      if (bytes.empty()) bytes = "x";
    }
    const TempFile file(bytes);
    try {
      const SafetensorsReader reader(file.path());
      for (const auto& [name, tensor] : reader.tensors()) {
        std::vector<uint8_t> out(static_cast<size_t>(tensor.end - tensor.begin));
        reader.read(tensor, out.data());
      }
    } catch (const aotpack::runtime::Error& error) {
      CHECK(error.code() == AOTPACK_INVALID_ARGUMENT);
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(refused < 2000);
}

TEST_CASE("state files: where writing fails the old file stays") {
  const Folder folder;
  const Model model = load(updatable_archive());
  Context context(model, 1);
  const std::string path = folder.file("state");
  context.save_state_file(path);
  ::chmod(path.c_str(), 0600);
  const std::string old = read_bytes(path);
  step(context);
  {
    // As a disk that is full: a limit of the size of files.
    rlimit before;
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{512 << 10, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    const aotpack::Error error = error_of([&] { context.save_state_file(path); });
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    CHECK(error.code() == AOTPACK_IO_ERROR);
    CHECK(message_of(error) == path + ": cannot write: File too large");
  }
  CHECK(read_bytes(path) == old);
  CHECK(folder.count() == 1);
  CHECK(error_of([&] { context.save_state_file("/dev/null"); }).code() == AOTPACK_IO_ERROR);
  CHECK(error_of([&] { context.save_state_file(folder.file("")); }).code() == AOTPACK_IO_ERROR);
  CHECK(error_of([&] { context.save_state_file("/tmp"); }).code() == AOTPACK_IO_ERROR);
  CHECK(error_of([&] { context.save_state_file(folder.file("no/x")); }).code() == AOTPACK_NOT_FOUND);
  CHECK(error_of([&] { context.save_state_file(std::string("a\0b", 3)); }).code() == AOTPACK_INVALID_ARGUMENT);
  context.save_state_file(path);
  CHECK(read_bytes(path) != old);
  CHECK((fs::status(path).permissions() & fs::perms::all) == (fs::perms::owner_read | fs::perms::owner_write));
  // A link is replaced, what it points to is not.
  fs::create_symlink(path, folder.file("link"));
  step(context);
  context.save_state_file(folder.file("link"));
  CHECK(!fs::is_symlink(folder.file("link")));
  CHECK(read_bytes(path) != read_bytes(folder.file("link")));
}

TEST_CASE("state files: a file that is not committed leaves nothing") {
  const Folder folder;
  {
    NewFile file(folder.file("a"));
    file.write("x", 1);
  }
  CHECK(folder.count() == 0);
}

TEST_CASE("atomic calls: one that fails leaves state and random generator as they were") {
  const Model model = load(updatable_archive());
  Context context(model, 1);
  context.set_check_finite(true);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [&](float value) {
    const aotpack::Error error = error_of([&] { step(context, value); });
    CHECK(error.code() == AOTPACK_EXECUTION_FAILED);
    CHECK(message_of(error) == "entry 'forward': output 'y' is not finite: it has a NaN or an infinite element");
  };
  refused(nan);  // the first call: there is no state yet
  CHECK(values(context) == std::pair<int64_t, float>{100, 0.5f});
  CHECK(step(context, 1) == 101);
  refused(nan);
  refused(std::numeric_limits<float>::infinity());
  CHECK(values(context) == std::pair<int64_t, float>{101, 1.5f});
  // The caller's buffers are not written to either.
  float y[4] = {-1, -1, -1, -1}, weight[4], sum[1], bulk[1];
  int64_t count[1];
  const std::vector<aotpack::MutableTensorView> outputs{
      aotpack::MutableTensorView(y, {1, 4}), aotpack::MutableTensorView(weight, {4}),
      aotpack::MutableTensorView(sum, {1}), aotpack::MutableTensorView(count, {1}),
      aotpack::MutableTensorView(bulk, {1})};
  const float x[4] = {nan, 0, 0, 0};
  CHECK_THROWS(context.run_into({TensorView(x, {1, 4})}, outputs));
  CHECK(y[0] == -1);
  CHECK(step(context, 1) == 102);
  context.set_check_finite(false);
  CHECK(step(context, nan) == 103);
  CHECK(values(context) == std::pair<int64_t, float>{103, 3.5f});
  context.set_atomic(true);  // which checks no values
  CHECK(step(context, nan) == 104);
}
