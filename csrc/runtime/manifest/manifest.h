// The manifest of an archive (docs/format.md), typed and checked: users of a Manifest need not check again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "aotpack/aotpack.h"
#include "base/dtype.h"
#include "base/sha256.h"
#include "shape/code.h"

namespace aotpack::runtime {

struct FileRecord {
  std::string path;
  uint64_t size = 0;
  Digest digest{};
};

struct ConstantRecord {
  std::string name;
  const DType* dtype = nullptr;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t nbytes = 0;
  Digest digest{};
  bool mutated = false;
  bool trained = false;  // a parameter, or the state of an optimizer, that steps of training replace as a whole
  bool absent = false;   // it depends on weights that a code-only archive lacks, and has no bytes; it needs `nbytes`
};

struct DimRecord {
  std::string name;
  int64_t min = 0;
  int64_t max = 0;  // INT64_MAX: no upper bound
  int64_t multiple_of = 1;
};

// The size of one dimension of a value.
struct SizeRecord {
  enum class Kind : uint8_t { kStatic, kDim, kCode, kData };
  Kind kind = Kind::kStatic;
  int64_t size = 0;  // kStatic
  uint32_t dim = 0;  // kDim: mul * dims[dim] + add
  int64_t mul = 1;
  int64_t add = 0;
  std::string text;  // kCode, kData: for people
  Code code;         // kCode: an int. kData: the module finds out

  bool is_plain_dim() const noexcept { return kind == Kind::kDim && mul == 1 && add == 0; }
};

// In the place of an index into `devices`: memory of the host, or a step that runs there.
inline constexpr uint32_t kHostDevice = UINT32_MAX;

struct ValueRecord {
  static constexpr uint32_t kNoDim = UINT32_MAX;
  std::string name;
  const DType* dtype = nullptr;
  std::vector<SizeRecord> shape;
  std::vector<uint32_t> order;  // outermost to innermost
  bool mutated = false;
  aotpack_number number = AOTPACK_NUMBER_NONE;
  uint32_t dim = kNoDim;  // of an int input: the dim that it gives
  // Of an int input that gives no dim, but must be this: kDim or kCode.
  std::optional<SizeRecord> formula;
  uint32_t device = 0;  // the logical device in whose memory it lies, or kHostDevice
};

struct GuardRecord {
  uint32_t dim = 0;
  int64_t min = 0;
  int64_t max = 0;
  int64_t multiple_of = 1;
};

// A condition on the dims of a call.
struct CheckRecord {
  std::string text;
  Code code;  // a bool
};

// Bytes that go with a module, such as code for a device.
struct AssetRecord {
  std::string name;
  uint32_t file = 0;
  uint64_t offset = 0;  // a multiple of AOTPACK_ALIGNMENT
  uint64_t nbytes = 0;

  bool operator==(const AssetRecord&) const = default;
};

struct ModuleRecord {
  std::string target;
  uint32_t abi_version = 0;
  uint32_t file = 0;
  std::vector<uint32_t> constants;
  std::vector<std::string> imports;
  std::vector<AssetRecord> assets;    // in the order of the module's asset_names
  std::vector<std::string> features;  // that it needs of the runtime; known or not
};

// A tensor that a step reads or produces.
struct ReferenceRecord {
  enum class Source : uint8_t { kInput, kOutput, kValue };
  Source source = Source::kInput;
  uint32_t index = 0;  // of the entry's inputs or outputs, or of the implementation's values

  bool operator==(const ReferenceRecord&) const = default;
};

// One call of a module.
struct StepRecord {
  uint32_t device = 0;  // the logical device that it runs on, or kHostDevice
  std::vector<ReferenceRecord> inputs;
  std::vector<ReferenceRecord> outputs;
  // Of an earlier format: inputs and outputs are those of the entry, in order, and the lists are empty.
  bool is_whole = false;
  ModuleRecord module;
};

// What computes an entry on hosts that run a target. Every reference is to what an earlier step produces, every output
// and value is produced by one step.
struct ImplementationRecord {
  std::string target;
  std::vector<ValueRecord> values;  // what one step hands to others
  std::vector<StepRecord> steps;
};

struct VariantRecord {
  std::string name;
  std::vector<GuardRecord> guards;
  std::vector<CheckRecord> checks;
  // Groups of inputs that must be one tensor: at least two each, ascending, in at most one group, of one dtype, rank,
  // order and device.
  std::vector<std::vector<uint32_t>> same;
  std::vector<ImplementationRecord> implementations;
};

// The entry that computes the gradients of another one, the forward.
struct BackwardRecord {
  uint32_t entry = 0;
  uint32_t num_results = 0;         // outputs of the forward that its result has; they come first
  std::vector<uint32_t> outputs;    // of the forward, that the backward reads: its first inputs
  std::vector<uint32_t> inputs;     // likewise; the next inputs of the backward
  std::vector<uint32_t> gradients;  // the output of the forward that each further input is the gradient of
};

struct EntryRecord {
  std::string name;
  std::vector<DimRecord> dims;
  std::unordered_map<std::string, uint32_t> dim_by_name;
  std::vector<ValueRecord> inputs;
  std::vector<ValueRecord> outputs;
  std::vector<VariantRecord> variants;
  std::optional<BackwardRecord> backward;
};

// A tensor of the source model's state dict.
struct WeightRecord {
  static constexpr uint32_t kNone = UINT32_MAX;
  std::string name;
  const DType* dtype = nullptr;
  std::vector<int64_t> shape;
  uint32_t constant = kNone;  // the one that holds its original value; kNone: nothing depends on it
};

// The entry that computes constants from tensors.
struct FoldRecord {
  uint32_t entry = 0;
  std::vector<uint32_t> inputs;   // by input of the entry: the tensor that it is
  std::vector<uint32_t> results;  // by output of the entry: the constant that it is
};

struct WeightsRecord {
  std::vector<WeightRecord> tensors;
  std::optional<FoldRecord> fold;
};

struct Manifest {
  // The first version in which values have devices, and variants have steps.
  static constexpr int64_t kStepsVersion = 6;
  // The first version in which an archive may lack the bytes of its weights.
  static constexpr int64_t kCodeOnlyVersion = 7;
  // The first version in which an archive may carry a description of its programs.
  static constexpr int64_t kDescriptionVersion = 8;
  // The first version in which variants may be for inputs that are one tensor.
  static constexpr int64_t kSameVersion = 9;

  int64_t format_version = 0;
  std::string name;
  std::vector<std::string> devices;  // names of the logical devices
  std::vector<FileRecord> files;
  std::vector<ConstantRecord> constants;
  bool code_only = false;  // some constants are absent: all that depend on the weights
  std::vector<EntryRecord> entries;
  std::optional<WeightsRecord> weights;  // none: frozen
};

// Throws MALFORMED_ARCHIVE with the path of the offending key, or UNSUPPORTED_VERSION.
Manifest parse_manifest(std::string_view text);

// Elements from the first to one past the last that a view of non-negative strides touches; 0 for an empty one.
// False when that overflows. `shape` and `stride` have the same length.
bool extent_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, uint64_t* out) noexcept;
// The bytes that the shape and stride of a constant span.
size_t extent_bytes(const ConstantRecord& record) noexcept;

}  // namespace aotpack::runtime
