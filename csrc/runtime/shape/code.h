// Codes: what an archive computes from the dims of a call, as postfix programs (docs/format.md, "code").
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace aotpack::runtime {

enum class CodeType : uint8_t { kInt, kFloat, kBool };

// One instruction: the operators of the format, one for each type that they take, and three that push.
enum class Op : uint8_t {
  kPush,     // a constant
  kPushDim,  // the value of a dim
  // int, int -> int
  kAddInt,
  kSubInt,
  kMulInt,
  kFloorDivInt,
  kModInt,
  kPowInt,
  kMinInt,
  kMaxInt,
  // int -> int
  kNegInt,
  kAbsInt,
  // float, float -> float
  kAddFloat,
  kSubFloat,
  kMulFloat,
  kDivFloat,
  kMinFloat,
  kMaxFloat,
  kPowFloat,
  // float -> float
  kNegFloat,
  kAbsFloat,
  kSqrt,
  kExp,
  kLog,
  kLog2,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  // conversions
  kToFloat,
  kTrunc,
  kFloor,
  kCeil,
  kRound,
  // int, int -> bool
  kEqualInt,
  kUnequalInt,
  kLessInt,
  kLessEqualInt,
  // float, float -> bool
  kEqualFloat,
  kUnequalFloat,
  kLessFloat,
  kLessEqualFloat,
  // bools
  kEqualBool,
  kUnequalBool,
  kAnd,
  kOr,
  kNot,
  kSelect  // of any type
};

union CodeValue {
  int64_t integer;
  double number;
  bool truth;
};

// Immutable once built; evaluating it is thread-safe, allocates nothing and never fails in another way than saying so.
class Code {
 public:
  static constexpr size_t kMaxItems = 256;
  static constexpr size_t kMaxDepth = 32;

  // The type of the value that it leaves.
  CodeType type() const noexcept { return type_; }
  // The dims that it reads, each once, in the order of their first use.
  const std::vector<uint32_t>& dims() const noexcept { return dims_; }

  // Runs it with these values of all dims of the entry. False where the result is not defined: an int that does not
  // fit 64 bits, a division of ints by zero, a negative exponent of ints, an int from a float that is nan or too large.
  bool evaluate(const int64_t* dims, CodeValue* out) const noexcept;

 private:
  friend class CodeBuilder;
  struct Instruction {
    Op op;
    uint32_t dim;
    CodeValue constant;
  };

  std::vector<Instruction> instructions_;
  std::vector<uint32_t> dims_;
  CodeType type_ = CodeType::kInt;
};

// Builds a code item by item and keeps track of the types on its stack. Every function returns NULL, or what is wrong.
class CodeBuilder {
 public:
  const char* push(int64_t constant);
  const char* push(double constant);
  const char* push(bool constant);
  const char* push_dim(uint32_t dim);
  // An operator by its name in the format.
  const char* apply(std::string_view name);
  // After the last item.
  const char* finish(CodeType wanted, Code* out);

 private:
  const char* add(CodeType type, Code::Instruction instruction);

  Code code_;
  std::vector<CodeType> stack_;
};

}  // namespace aotpack::runtime
