// explained ARCHIVE DIGITS: prints the digit on each image of a raw float file, one a line.
//
// The same as terse.cpp, with comments and input checks. DIGITS contains consecutive images of 8x8 float32 pixels in
// [0, 1]; examples/digits/train.py writes such a file.
#include <algorithm>
#include <aotpack/aotpack.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int64_t kSide = 8;
constexpr int64_t kPixels = kSide * kSide;

// The floats in the file; throws std::runtime_error if it cannot be read or does not contain whole images.
std::vector<float> read_images(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error("cannot open " + path);
  const std::streamoff size = file.tellg();
  if (size <= 0 || size % static_cast<std::streamoff>(kPixels * sizeof(float)) != 0) {
    throw std::runtime_error(path + " does not hold whole images of 8x8 floats");
  }
  std::vector<float> pixels(static_cast<size_t>(size) / sizeof(float));
  file.seekg(0);
  if (!file.read(reinterpret_cast<char*>(pixels.data()), size)) throw std::runtime_error("cannot read " + path);
  return pixels;
}

void classify(const std::string& archive, const std::string& digits) {
  // A model is an archive mapped into memory. Loading verifies the structure and the executable code of the file
  // against its hashes, and selects the best code for this processor. A model never changes: any number of threads may
  // share it, and copies of the object refer to the same model.
  const aotpack::Model model = aotpack::Model::load(archive);

  // A context holds what one thread needs to call a model: scratch memory, the number of threads per call (here 2), and
  // buffers that the model writes to. Create one context per thread.
  aotpack::Context context(model, /*num_threads=*/2);

  // Inputs are views of your memory: nothing is copied, and the memory must remain valid until the call returns. The
  // element type follows from the pointer. Strides are optional; the default is contiguous.
  const std::vector<float> pixels = read_images(digits);
  const int64_t batch = static_cast<int64_t>(pixels.size()) / kPixels;
  const aotpack::TensorView images(pixels.data(), {batch, 1, kSide, kSide});

  // Every call checks types and sizes. An invalid input raises an exception with a message in the terms of the model,
  // such as "batch must be in [1, 1797]". The results are tensors that own their memory; they may outlive context and
  // model.
  const std::vector<aotpack::Tensor> outputs = context.run({images});

  // data<float>() throws if the element type is different. The result is [batch, classes].
  const aotpack::Tensor& logits = outputs[0];
  const int64_t classes = logits.size(1);
  const float* row = logits.data<float>();
  for (int64_t image = 0; image < batch; ++image, row += classes) {
    std::printf("%td\n", std::max_element(row, row + classes) - row);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: explained ARCHIVE DIGITS\n");
    return 2;
  }
  try {
    classify(argv[1], argv[2]);
    return 0;
  } catch (const aotpack::Error& error) {
    // A program can react to code(), e.g. fetch another archive for AOTPACK_UNSUPPORTED_TARGET.
    std::fprintf(stderr, "explained: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "explained: %s\n", error.what());
  }
  return 1;
}
