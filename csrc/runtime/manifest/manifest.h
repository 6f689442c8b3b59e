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

struct VariantRecord {
  std::string name;
  std::vector<GuardRecord> guards;
  std::vector<CheckRecord> checks;
  std::vector<ModuleRecord> modules;
};

struct EntryRecord {
  std::string name;
  std::vector<DimRecord> dims;
  std::unordered_map<std::string, uint32_t> dim_by_name;
  std::vector<ValueRecord> inputs;
  std::vector<ValueRecord> outputs;
  std::vector<VariantRecord> variants;
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
  std::string name;
  std::vector<FileRecord> files;
  std::vector<ConstantRecord> constants;
  std::vector<EntryRecord> entries;
  std::optional<WeightsRecord> weights;  // none: frozen
};

// Throws MALFORMED_ARCHIVE with the path of the offending key, or UNSUPPORTED_VERSION.
Manifest parse_manifest(std::string_view text);

// Elements from the first to one past the last that a view of non-negative strides touches; 0 for an empty one.
// False when that overflows. `shape` and `stride` have the same length.
bool extent_of(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride, uint64_t* out) noexcept;

}  // namespace aotpack::runtime
