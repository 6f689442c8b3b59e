// terse ARCHIVE DIGITS: prints the digit on each image of a raw float file. explained.cpp is the same with comments.
#include <algorithm>
#include <aotpack/aotpack.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <vector>

int main(int argc, char** argv) try {
  if (argc != 3) return std::fprintf(stderr, "usage: terse ARCHIVE DIGITS\n"), 2;
  std::ifstream file(argv[2], std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* pixels = reinterpret_cast<const float*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / (64 * sizeof(float)));

  aotpack::Context context(aotpack::Model::load(argv[1]));
  const auto outputs = context.run({aotpack::TensorView(pixels, {count, 1, 8, 8})});
  const float* scores = outputs[0].data<float>();
  for (int64_t i = 0; i < count; ++i, scores += 10)
    std::printf("%td\n", std::max_element(scores, scores + 10) - scores);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "terse: %s\n", error.what()), 1;
}
