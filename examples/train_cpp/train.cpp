// train ARCHIVE DATA CHECKPOINT EPOCHS: trains a classifier of digits, and saves a checkpoint after each epoch. If the
// checkpoint exists, training goes on from there. No Python and no torch: the archive has the forward, the backward and
// the optimizer.
#include <algorithm>
#include <aotpack/aotpack.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr size_t kPixels = 64, kBatch = 64;

template <typename T>
std::vector<T> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto* values = reinterpret_cast<const T*>(bytes.data());
  return {values, values + bytes.size() / sizeof(T)};
}

struct Digits {
  explicit Digits(const std::string& name) : pixels(read<float>(name + ".f32")), labels(read<int64_t>(name + ".i64")) {
    if (labels.empty() || pixels.size() != labels.size() * kPixels) throw std::runtime_error(name + " has no digits");
  }
  size_t size() const { return labels.size(); }

  std::vector<float> pixels;
  std::vector<int64_t> labels;
};

// The mean loss of an epoch; the order of the digits depends on `epoch` alone.
double train(aotpack::Context& context, const Digits& digits, unsigned epoch, double rate) {
  std::vector<size_t> order(digits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), std::mt19937(epoch));
  double sum = 0;
  for (size_t begin = 0; begin < order.size(); begin += kBatch) {
    const size_t count = std::min(kBatch, order.size() - begin);
    std::vector<float> pixels;
    std::vector<int64_t> labels;
    for (size_t i = begin; i < begin + count; ++i) {
      const float* image = digits.pixels.data() + order[i] * kPixels;
      pixels.insert(pixels.end(), image, image + kPixels);
      labels.push_back(digits.labels[order[i]]);
    }
    const auto batch = static_cast<int64_t>(count);
    const auto results = context.run({aotpack::TensorView(pixels.data(), {batch, 1, 8, 8}),
                                      aotpack::TensorView(labels.data(), {batch}), aotpack::TensorView(&rate, {})},
                                     "train_step");
    sum += static_cast<double>(results[0].data<float>()[0]) * static_cast<double>(count);
  }
  return sum / static_cast<double>(digits.size());
}

// How many steps were made: a batch norm counts them, and checkpoints have all of the state.
size_t steps(aotpack::Context& context) {
  for (const auto& [name, tensor] : context.state()) {
    if (name == "1.num_batches_tracked") return static_cast<size_t>(tensor.data<int64_t>()[0]);
  }
  throw std::runtime_error("the archive is not that of model.py");
}

// With the weights of this moment, in evaluation mode.
double accuracy(aotpack::Context& context, const Digits& digits) {
  const auto count = static_cast<int64_t>(digits.size());
  const auto results = context.run({aotpack::TensorView(digits.pixels.data(), {count, 1, 8, 8})}, "forward");
  const float* scores = results[0].data<float>();
  size_t right = 0;
  for (const int64_t label : digits.labels) {
    right += std::max_element(scores, scores + 10) - scores == label;
    scores += 10;
  }
  return static_cast<double>(right) / static_cast<double>(digits.size());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 5) return std::fprintf(stderr, "usage: train ARCHIVE DATA CHECKPOINT EPOCHS\n"), 2;
  const std::string data = argv[2], checkpoint = argv[3];
  const auto epochs = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10));
  const Digits digits(data + "/train"), heldout(data + "/heldout");

  aotpack::Context context(aotpack::Model::load(argv[1]));
  context.set_seed(0);
  // A loss that is not finite ends the program, and leaves the weights as they were.
  context.set_check_finite(true);
  if (std::ifstream(checkpoint)) context.load_state_file(checkpoint);
  const size_t batches = (digits.size() + kBatch - 1) / kBatch;
  for (auto epoch = static_cast<unsigned>(steps(context) / batches); epoch < epochs; ++epoch) {
    const double mean = train(context, digits, epoch, 0.005 / (1 + epoch));
    std::printf("epoch %u: loss %.4f, accuracy %.4f\n", epoch + 1, mean, accuracy(context, heldout));
    context.save_state_file(checkpoint);
  }
} catch (const std::exception& error) {
  return std::fprintf(stderr, "train: %s\n", error.what()), 1;
}
