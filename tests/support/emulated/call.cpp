// call ARCHIVE PREFIX [CODE BITS SHAPE FILE]...: loads an archive, prints its target, calls it with tensors of raw
// files (CODE as in DLPack, SHAPE as 2x3) and writes each output, raw, to PREFIX and its number.
#include <aotpack/aotpack.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  const aotpack::Model model = aotpack::Model::load(argv[1]);
  std::vector<std::vector<char>> bytes;
  std::vector<aotpack::TensorView> inputs;
  for (int i = 3; i + 3 < argc; i += 4) {
    const DLDataType dtype{static_cast<uint8_t>(std::atoi(argv[i])), static_cast<uint8_t>(std::atoi(argv[i + 1])), 1};
    std::vector<int64_t> shape;
    std::stringstream dims(argv[i + 2]);
    for (std::string dim; std::getline(dims, dim, 'x');) shape.push_back(std::stoll(dim));
    std::ifstream file(argv[i + 3], std::ios::binary);
    bytes.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    inputs.emplace_back(static_cast<const void*>(bytes.back().data()), dtype, std::move(shape));
  }
  std::printf("%s\n", std::string(model.entry_target(0)).c_str());
  aotpack::Context context(model);
  const auto outputs = context.run(inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    size_t size = outputs[i].dtype().bits / 8;
    for (int64_t dim : outputs[i].shape()) size *= static_cast<size_t>(dim);
    std::ofstream file(argv[2] + std::to_string(i), std::ios::binary);
    file.write(static_cast<const char*>(outputs[i].raw_data()), static_cast<std::streamsize>(size));
  }
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
