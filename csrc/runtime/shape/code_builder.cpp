#include <algorithm>
#include <iterator>

#include "shape/code.h"

namespace aotpack::runtime {
namespace {

constexpr CodeType kInt = CodeType::kInt;
constexpr CodeType kFloat = CodeType::kFloat;
constexpr CodeType kBool = CodeType::kBool;

// `select` apart, whose operands may be of any type.
struct Operator {
  std::string_view name;
  uint8_t arity;
  CodeType operand;  // all operands are of one type
  CodeType result;
  Op op;
};

constexpr Operator kOperators[] = {
    {"+", 2, kInt, kInt, Op::kAddInt},
    {"-", 2, kInt, kInt, Op::kSubInt},
    {"*", 2, kInt, kInt, Op::kMulInt},
    {"//", 2, kInt, kInt, Op::kFloorDivInt},
    {"%", 2, kInt, kInt, Op::kModInt},
    {"**", 2, kInt, kInt, Op::kPowInt},
    {"min", 2, kInt, kInt, Op::kMinInt},
    {"max", 2, kInt, kInt, Op::kMaxInt},
    {"neg", 1, kInt, kInt, Op::kNegInt},
    {"abs", 1, kInt, kInt, Op::kAbsInt},
    {"+", 2, kFloat, kFloat, Op::kAddFloat},
    {"-", 2, kFloat, kFloat, Op::kSubFloat},
    {"*", 2, kFloat, kFloat, Op::kMulFloat},
    {"/", 2, kFloat, kFloat, Op::kDivFloat},
    {"min", 2, kFloat, kFloat, Op::kMinFloat},
    {"max", 2, kFloat, kFloat, Op::kMaxFloat},
    {"pow", 2, kFloat, kFloat, Op::kPowFloat},
    {"neg", 1, kFloat, kFloat, Op::kNegFloat},
    {"abs", 1, kFloat, kFloat, Op::kAbsFloat},
    {"sqrt", 1, kFloat, kFloat, Op::kSqrt},
    {"exp", 1, kFloat, kFloat, Op::kExp},
    {"log", 1, kFloat, kFloat, Op::kLog},
    {"log2", 1, kFloat, kFloat, Op::kLog2},
    {"sin", 1, kFloat, kFloat, Op::kSin},
    {"cos", 1, kFloat, kFloat, Op::kCos},
    {"tan", 1, kFloat, kFloat, Op::kTan},
    {"asin", 1, kFloat, kFloat, Op::kAsin},
    {"acos", 1, kFloat, kFloat, Op::kAcos},
    {"atan", 1, kFloat, kFloat, Op::kAtan},
    {"sinh", 1, kFloat, kFloat, Op::kSinh},
    {"cosh", 1, kFloat, kFloat, Op::kCosh},
    {"tanh", 1, kFloat, kFloat, Op::kTanh},
    {"float", 1, kInt, kFloat, Op::kToFloat},
    {"trunc", 1, kFloat, kInt, Op::kTrunc},
    {"floor", 1, kFloat, kInt, Op::kFloor},
    {"ceil", 1, kFloat, kInt, Op::kCeil},
    {"round", 1, kFloat, kInt, Op::kRound},
    {"==", 2, kInt, kBool, Op::kEqualInt},
    {"!=", 2, kInt, kBool, Op::kUnequalInt},
    {"<", 2, kInt, kBool, Op::kLessInt},
    {"<=", 2, kInt, kBool, Op::kLessEqualInt},
    {"==", 2, kFloat, kBool, Op::kEqualFloat},
    {"!=", 2, kFloat, kBool, Op::kUnequalFloat},
    {"<", 2, kFloat, kBool, Op::kLessFloat},
    {"<=", 2, kFloat, kBool, Op::kLessEqualFloat},
    {"==", 2, kBool, kBool, Op::kEqualBool},
    {"!=", 2, kBool, kBool, Op::kUnequalBool},
    {"and", 2, kBool, kBool, Op::kAnd},
    {"or", 2, kBool, kBool, Op::kOr},
    {"not", 1, kBool, kBool, Op::kNot},
};

constexpr const char* kTooFew = "the stack holds too few values for this operator";
constexpr const char* kWrongTypes = "the operands are not of the types that this operator takes";

}  // namespace

const char* CodeBuilder::add(CodeType type, Code::Instruction instruction) {
  if (code_.instructions_.size() == Code::kMaxItems) return "more than 256 items";
  if (stack_.size() == Code::kMaxDepth) return "more than 32 values on the stack";
  code_.instructions_.push_back(instruction);
  stack_.push_back(type);
  return nullptr;
}

const char* CodeBuilder::push(int64_t constant) { return add(kInt, {Op::kPush, 0, {.integer = constant}}); }

const char* CodeBuilder::push(double constant) { return add(kFloat, {Op::kPush, 0, {.number = constant}}); }

const char* CodeBuilder::push(bool constant) { return add(kBool, {Op::kPush, 0, {.truth = constant}}); }

const char* CodeBuilder::push_dim(uint32_t dim) {
  std::vector<uint32_t>& dims = code_.dims_;
  if (std::find(dims.begin(), dims.end(), dim) == dims.end()) dims.push_back(dim);
  return add(kInt, {Op::kPushDim, dim, {}});
}

const char* CodeBuilder::apply(std::string_view name) {
  Code::Instruction instruction = {Op::kSelect, 0, {}};
  if (name == "select") {
    if (stack_.size() < 3) return kTooFew;
    const CodeType* operands = &stack_[stack_.size() - 3];
    if (operands[0] != kBool || operands[1] != operands[2]) return kWrongTypes;
    const CodeType type = operands[1];
    stack_.resize(stack_.size() - 3);
    return add(type, instruction);
  }
  const auto named = [&](const Operator& candidate) { return candidate.name == name; };
  const Operator* found = std::find_if(std::begin(kOperators), std::end(kOperators), named);
  if (found == std::end(kOperators)) return "unknown operator";
  if (stack_.size() < found->arity) return kTooFew;  // those of one name have one arity
  found = std::find_if(found, std::end(kOperators), [&](const Operator& candidate) {
    return named(candidate) && candidate.operand == stack_.back();
  });
  if (found == std::end(kOperators)) return kWrongTypes;
  if (found->arity == 2 && stack_[stack_.size() - 2] != found->operand) return kWrongTypes;
  stack_.resize(stack_.size() - found->arity);
  instruction.op = found->op;
  return add(found->result, instruction);
}

const char* CodeBuilder::finish(CodeType wanted, Code* out) {
  if (stack_.size() != 1) return "does not leave exactly one value";
  if (stack_.back() != wanted) return wanted == kInt ? "does not leave an int" : "does not leave a bool";
  code_.type_ = wanted;
  *out = std::move(code_);
  return nullptr;
}

}  // namespace aotpack::runtime
