#include "shape/code.h"

#include <cmath>

#include "base/bytes.h"

namespace aotpack::runtime {
namespace {

bool checked_sub(int64_t a, int64_t b, int64_t* out) noexcept { return !__builtin_sub_overflow(a, b, out); }

// Rounds towards minus infinity, as Python does.
bool floor_div(int64_t a, int64_t b, int64_t* out) noexcept {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  *out = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  return true;
}

// Has the sign of the divisor, as in Python.
bool floor_mod(int64_t a, int64_t b, int64_t* out) noexcept {
  if (b == 0) return false;
  const int64_t rest = b == -1 ? 0 : a % b;  // INT64_MIN % -1 traps
  *out = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  return true;
}

bool power(int64_t base, int64_t exponent, int64_t* out) noexcept {
  if (exponent < 0) return false;
  int64_t result = 1;
  for (;;) {
    if ((exponent & 1) != 0 && !checked_mul(result, base, &result)) return false;
    exponent >>= 1;
    if (exponent == 0) break;
    // A square that does not fit is needed sooner or later: the exponent's highest bit is set.
    if (!checked_mul(base, base, &base)) return false;
  }
  *out = result;
  return true;
}

// Of a number that is whole already, or nan, or infinite.
bool to_int(double number, int64_t* out) noexcept {
  if (!(number >= -0x1p63 && number < 0x1p63)) return false;
  *out = static_cast<int64_t>(number);
  return true;
}

// Whatever the rounding mode of the thread is.
double round_half_even(double number) noexcept {
  const double below = std::floor(number);
  const double rest = number - below;
  if (rest != 0.5) return rest < 0.5 ? below : below + 1;
  return std::fmod(below, 2) == 0 ? below : below + 1;
}

}  // namespace

bool Code::evaluate(const int64_t* dims, CodeValue* out) const noexcept {
  // The value i from below lies at i + 2, so that the operands below are inside also where there are none. The builder
  // has seen to it that the depth stays in its bounds.
  CodeValue stack[kMaxDepth + 2];
  size_t depth = 0;
  for (const Instruction& instruction : instructions_) {
    CodeValue& a = stack[depth];  // the operands of what takes two
    const CodeValue& b = stack[depth + 1];
    CodeValue& x = stack[depth + 1];  // of what takes one
    switch (instruction.op) {
      case Op::kPush:
        stack[2 + depth++] = instruction.constant;
        break;
      case Op::kPushDim:
        stack[2 + depth++].integer = dims[instruction.dim];
        break;

      case Op::kAddInt:
        if (!checked_add(a.integer, b.integer, &a.integer)) return false;
        --depth;
        break;
      case Op::kSubInt:
        if (!checked_sub(a.integer, b.integer, &a.integer)) return false;
        --depth;
        break;
      case Op::kMulInt:
        if (!checked_mul(a.integer, b.integer, &a.integer)) return false;
        --depth;
        break;
      case Op::kFloorDivInt:
        if (!floor_div(a.integer, b.integer, &a.integer)) return false;
        --depth;
        break;
      case Op::kModInt:
        if (!floor_mod(a.integer, b.integer, &a.integer)) return false;
        --depth;
        break;
      case Op::kPowInt:
        if (!power(a.integer, b.integer, &a.integer)) return false;
        --depth;
        break;
      case Op::kMinInt:
        if (b.integer < a.integer) a.integer = b.integer;
        --depth;
        break;
      case Op::kMaxInt:
        if (b.integer > a.integer) a.integer = b.integer;
        --depth;
        break;
      case Op::kNegInt:
        if (!checked_sub(0, x.integer, &x.integer)) return false;
        break;
      case Op::kAbsInt:
        if (x.integer < 0 && !checked_sub(0, x.integer, &x.integer)) return false;
        break;

      case Op::kAddFloat:
        a.number += b.number;
        --depth;
        break;
      case Op::kSubFloat:
        a.number -= b.number;
        --depth;
        break;
      case Op::kMulFloat:
        a.number *= b.number;
        --depth;
        break;
      case Op::kDivFloat:
        a.number /= b.number;  // infinite or nan for 0, as IEEE 754 has it
        --depth;
        break;
      case Op::kMinFloat:
        if (b.number < a.number) a.number = b.number;
        --depth;
        break;
      case Op::kMaxFloat:
        if (b.number > a.number) a.number = b.number;
        --depth;
        break;
      case Op::kPowFloat:
        a.number = std::pow(a.number, b.number);
        --depth;
        break;
      case Op::kNegFloat:
        x.number = -x.number;
        break;
      case Op::kAbsFloat:
        x.number = std::fabs(x.number);
        break;
      case Op::kSqrt:
        x.number = std::sqrt(x.number);
        break;
      case Op::kExp:
        x.number = std::exp(x.number);
        break;
      case Op::kLog:
        x.number = std::log(x.number);
        break;
      case Op::kLog2:
        x.number = std::log2(x.number);
        break;
      case Op::kSin:
        x.number = std::sin(x.number);
        break;
      case Op::kCos:
        x.number = std::cos(x.number);
        break;
      case Op::kTan:
        x.number = std::tan(x.number);
        break;
      case Op::kAsin:
        x.number = std::asin(x.number);
        break;
      case Op::kAcos:
        x.number = std::acos(x.number);
        break;
      case Op::kAtan:
        x.number = std::atan(x.number);
        break;
      case Op::kSinh:
        x.number = std::sinh(x.number);
        break;
      case Op::kCosh:
        x.number = std::cosh(x.number);
        break;
      case Op::kTanh:
        x.number = std::tanh(x.number);
        break;

      case Op::kToFloat:
        x.number = static_cast<double>(x.integer);
        break;
      case Op::kTrunc:
        if (!to_int(std::trunc(x.number), &x.integer)) return false;
        break;
      case Op::kFloor:
        if (!to_int(std::floor(x.number), &x.integer)) return false;
        break;
      case Op::kCeil:
        if (!to_int(std::ceil(x.number), &x.integer)) return false;
        break;
      case Op::kRound:
        if (!to_int(round_half_even(x.number), &x.integer)) return false;
        break;

      case Op::kEqualInt:
        a.truth = a.integer == b.integer;
        --depth;
        break;
      case Op::kUnequalInt:
        a.truth = a.integer != b.integer;
        --depth;
        break;
      case Op::kLessInt:
        a.truth = a.integer < b.integer;
        --depth;
        break;
      case Op::kLessEqualInt:
        a.truth = a.integer <= b.integer;
        --depth;
        break;
      case Op::kEqualFloat:
        a.truth = a.number == b.number;
        --depth;
        break;
      case Op::kUnequalFloat:
        a.truth = a.number != b.number;
        --depth;
        break;
      case Op::kLessFloat:
        a.truth = a.number < b.number;
        --depth;
        break;
      case Op::kLessEqualFloat:
        a.truth = a.number <= b.number;
        --depth;
        break;
      case Op::kEqualBool:
        a.truth = a.truth == b.truth;
        --depth;
        break;
      case Op::kUnequalBool:
        a.truth = a.truth != b.truth;
        --depth;
        break;
      case Op::kAnd:
        a.truth = a.truth && b.truth;
        --depth;
        break;
      case Op::kOr:
        a.truth = a.truth || b.truth;
        --depth;
        break;
      case Op::kNot:
        x.truth = !x.truth;
        break;
      case Op::kSelect:
        stack[depth - 1] = stack[depth - 1].truth ? a : b;
        depth -= 2;
        break;
    }
  }
  *out = stack[2];
  return true;
}

}  // namespace aotpack::runtime
