// aotpack_start ARCHIVE THREADS BEGAN INPUT...: loads an archive, calls it twice and prints milliseconds as JSON. BEGAN
// is CLOCK_MONOTONIC in nanoseconds when the process was started; an INPUT is "CODE:BITS:SIZExSIZE...:FILE", with the
// code and bits of DLPack's type.
#include <aotpack/aotpack.hpp>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

struct Input {
  DLDataType type;
  aotpack::Shape shape;
  std::vector<char> bytes;

  explicit Input(const std::string& text) {
    std::istringstream parts(text);
    std::string code, bits, sizes, path, size;
    std::getline(parts, code, ':');
    std::getline(parts, bits, ':');
    std::getline(parts, sizes, ':');
    std::getline(parts, path);
    type = {static_cast<uint8_t>(std::stoi(code)), static_cast<uint8_t>(std::stoi(bits)), 1};
    std::istringstream each(sizes);
    while (std::getline(each, size, 'x')) shape.push_back(std::stoll(size));
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot open " + path);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
};

void run(int argc, char** argv) {
  const int64_t began = std::stoll(argv[3]), entered = now();
  std::vector<Input> inputs(argv + 4, argv + argc);
  std::vector<aotpack::TensorView> views;
  for (const Input& input : inputs) views.emplace_back(input.bytes.data(), input.type, input.shape);
  const int64_t read = now();
  const aotpack::Model model = aotpack::Model::load(argv[1]);
  aotpack::Context context(model, std::stoi(argv[2]));
  const int64_t loaded = now();
  context.run(views);
  const int64_t first = now();
  context.run(views);
  const int64_t second = now();
  const auto ms = [](int64_t from, int64_t to) { return static_cast<double>(to - from) * 1e-6; };
  std::printf("{\"exec\": %.3f, \"load\": %.3f, \"first\": %.3f, \"later\": %.3f, \"total\": %.3f}\n",
              ms(began, entered), ms(read, loaded), ms(loaded, first), ms(first, second),
              ms(began, first) - ms(entered, read));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: aotpack_start ARCHIVE THREADS BEGAN INPUT...\n");
    return 2;
  }
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "aotpack_start: %s\n", error.what());
    return 1;
  }
}
