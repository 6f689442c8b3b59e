// explained ARCHIVE DIGITS: prints the digit on each image of a raw float file, one a line.
//
// The same as terse.cpp, with every step explained and every input checked. DIGITS holds images of 8x8 float32 pixels
// in [0, 1], one after the other; examples/digits/train.py writes such a file.
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

// The file's floats; throws std::runtime_error when it cannot be read or does not hold whole images.
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
  // A model is an archive that was mapped into memory. Loading checks the file's structure and everything executable in
  // it against its hashes, and picks the code that suits this processor best. A model never changes: any number of
  // threads may share one, and copies of the object are references to the same model.
  const aotpack::Model model = aotpack::Model::load(archive);

  // A context is what a thread needs to call a model: scratch memory, the number of threads inside a call (here 2) and
  // buffers that the model writes to, if it has any. Give every thread of yours one of its own.
  aotpack::Context context(model, /*num_threads=*/2);

  // Inputs are views of memory that is yours: nothing is copied, and the memory must stay until the call returns. The
  // element type is taken from the pointer; strides may be given too, and default to contiguous.
  const std::vector<float> pixels = read_images(digits);
  const int64_t batch = static_cast<int64_t>(pixels.size()) / kPixels;
  const aotpack::TensorView images(pixels.data(), {batch, 1, kSide, kSide});

  // Types and sizes are checked on every call, so a wrong one is an exception with a message in the model's own terms,
  // such as "batch must be in [1, 1797]". The results are tensors that own their memory; they may outlive context and
  // model.
  const std::vector<aotpack::Tensor> outputs = context.run({images});

  // data<float>() throws should the elements be of another type. The result is [batch, classes].
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
    // code() is there to act upon: AOTPACK_UNSUPPORTED_TARGET, say, could make a program fetch another archive.
    std::fprintf(stderr, "explained: %s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "explained: %s\n", error.what());
  }
  return 1;
}
