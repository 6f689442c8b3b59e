// Archives around the hand-written modules, and what tests need to use them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "aotpack/aotpack.hpp"
#include "archive_writer.h"

namespace aotpack::tests {

// A file in a temporary folder of this process, removed when it goes.
class TempFile {
 public:
  TempFile();
  explicit TempFile(const std::string& bytes);
  explicit TempFile(const ArchiveWriter& writer);
  ~TempFile();
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  const std::string& path() const { return path_; }
  void write(const std::string& bytes) const;
  // One byte in place.
  void poke(uint64_t offset, char byte) const;
  // All bits of one byte.
  void flip(uint64_t offset) const;

 private:
  std::string path_;
};

std::string read_bytes(const std::string& path);

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

// ---- pieces of manifests

Json dim(const std::string& name, int64_t min, Json max, int64_t multiple_of = 1);
Json guard(const std::string& dim, int64_t min, Json max, int64_t multiple_of = 1);
Json size(const std::string& dim, int64_t mul = 1, int64_t add = 0);
// A size that `code` computes; null: it comes out of the data.
Json expression(const std::string& text, Json code);
// Contiguous unless `order` is given.
Json value(const std::string& name, const std::string& dtype, std::vector<Json> shape, std::vector<Json> order = {},
           bool mutated = false);
// An "int", "float" or "bool".
Json number(const std::string& name, const std::string& kind, Json dim = {});
// A condition of a variant.
Json check(const std::string& text, Json code);
Json module(int64_t file, std::vector<Json> constants, std::vector<Json> imports, const std::string& target = "x86-64");
// References to the first `count` inputs, outputs or values.
std::vector<Json> references(const std::string& source, size_t count);
Json reference(const std::string& source, int64_t index);
// `device`: an index, or null: the host.
Json step(Json module, std::vector<Json> inputs, std::vector<Json> outputs, Json device = 0);
Json implementation(const std::string& target, std::vector<Json> steps, std::vector<Json> values = {});
// What steps hand to each other, row-major.
Json intermediate(const std::string& name, const std::string& dtype, std::vector<Json> shape, Json device = 0);
// One implementation for each module, which computes the entry; of one input and one output unless `entry` below knows
// better.
Json variant(const std::string& name, std::vector<Json> guards, std::vector<Json> modules,
             std::vector<Json> checks = {});
// A variant's implementations for modules that compute the entry.
Json targets(std::vector<Json> modules, size_t num_inputs = 1, size_t num_outputs = 1);
// The module of a step.
Json& module_in(Json& entry, size_t variant = 0, size_t target = 0, size_t step = 0);
// With specs that take the inputs positionally and return a tuple.
Json entry(const std::string& name, std::vector<Json> dims, std::vector<Json> inputs, std::vector<Json> outputs,
           std::vector<Json> variants);
Json constant(const std::string& name, const std::string& dtype, std::vector<Json> shape, std::vector<Json> stride,
              int64_t file, int64_t offset, const std::string& bytes, bool mutated = false);
// Frozen; `weights` can be set on it.
Json manifest(std::vector<Json> constants, std::vector<Json> entries);
// A tensor of `weights`.
Json weight(const std::string& name, const std::string& dtype, std::vector<Json> shape, Json constant);

// ---- archives

// y = 2x + w; x is float32 [batch, 4] with batch in [1, 64], w = {1, 2, 3, 4}. One golden.
ArchiveWriter affine_archive();
ArchiveWriter alias_archive();
ArchiveWriter failing_archive();
// x: int32 [n, c, h, w], brought into channels-last; sizes dynamic if `dynamic`, else [2, 3, 2, 2].
ArchiveWriter layout_archive(bool dynamic);
ArchiveWriter mutate_archive();
// Two entries of one module; "turned" wants the mask column by column. `keep` can be updated, `seen` is state.
ArchiveWriter bools_archive(const std::vector<uint8_t>& keep = {0, 1, 1, 0},
                            const std::vector<uint8_t>& seen = {1, 0, 0, 1});
ArchiveWriter seed_archive();
inline constexpr size_t kBulk = 1 << 18;
// What the archive of `updatable_archive` is made from, and what it computes.
struct UpdatableWeights {
  std::vector<float> weight = {1, 2, 3, 4};
  std::vector<float> gain = {1, 1, 2, 2};
  std::vector<float> bias = {10, 20, 30, 40};                 // also under the name "tied"
  std::vector<float> matrix = {0, 1, 2, 3, 4, 5};             // [2, 3], row-major; kept transposed
  std::vector<int64_t> count = {100};                         // state
  std::vector<float> bulk = std::vector<float>(kBulk, 0.5f);  // state, of 1 MiB
};
// forward(x [batch, 4]) and again(x): y = x * packed + bias with packed = weight * gain by the entry `fold`, which
// refuses a gain that begins with 0; the weight itself; the sum of packed, bias and matrix over 16 rounds; count, which
// grows by one; bulk[0], which grows by one. "unused" is an int64 scalar that nothing depends on.
ArchiveWriter updatable_archive(const UpdatableWeights& weights = {});

// With all checks, from a file that is removed.
Model load(const ArchiveWriter& writer);
Context context_of(const ArchiveWriter& writer);
// Of an archive whose module returns float32 [2] for any one or two inputs; a single one is an int64 that is not
// below 9.
Context checker(std::vector<Json> dims, std::vector<Json> inputs);
// Of two inputs and an int `n`, which may give a dim; the output is int64 [n] by the module, `size` by the manifest.
Context trio(std::vector<Json> dims, std::vector<Json> inputs, Json size);

// ---- expectations

// Runs `body`, which has to throw an aotpack::Error, and returns that. A doctest failure when it does not.
Error error_of(const std::function<void()>& body);
Error load_error(const ArchiveWriter& writer, Verify verify = Verify::kCode);
Error load_error(const std::string& bytes, Verify verify = Verify::kCode);
// Runs an entry, which has to refuse the inputs (INVALID_ARGUMENT), and returns the message.
std::string refusal(Context& context, const std::vector<TensorView>& inputs);
// The message without the code's name.
std::string message_of(const Error& error);

}  // namespace aotpack::tests
