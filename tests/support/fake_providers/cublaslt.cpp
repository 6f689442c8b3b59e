// cuBLASLt, as its sums are defined: column-major matrices, batches with strides, and the epilogues that the runtime
// asks for.
#include <algorithm>
#include <cmath>
#include <mutex>

#include "halves.h"
#include "queue.h"

using namespace fake_providers;

namespace {

constexpr int kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 14;
constexpr int kIn32 = 68, kIn64 = 70, kInTf32 = 77;
constexpr int kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15;
constexpr size_t kWork = 160;
constexpr uint64_t kMagic = 0x637562;

struct Layout {
  int type;
  int64_t rows, columns, step;
  int32_t batch = 1;
  int64_t batch_step = 0;
};
struct Operation {
  int compute, sum;
  int32_t transposes_a = 0, transposes_b = 0;
  uint32_t epilogue = 1;
  const void* bias = nullptr;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

std::mutex mutex;  // of both below
uint64_t calls = 0, asked = 0;

double load(int type, const void* memory, int64_t at) {
  switch (type) {
    case kFloat16:
      return from_half(access<uint16_t>(static_cast<const uint16_t*>(memory) + at, 1)[0]);
    case kBfloat16:
      return from_bfloat16(access<uint16_t>(static_cast<const uint16_t*>(memory) + at, 1)[0]);
    case kFloat32:
      return access<float>(static_cast<const float*>(memory) + at, 1)[0];
    default:
      return access<double>(static_cast<const double*>(memory) + at, 1)[0];
  }
}

void store(int type, void* memory, int64_t at, double value) {
  switch (type) {
    case kFloat16:
      access<uint16_t>(static_cast<uint16_t*>(memory) + at, 1)[0] = to_half(static_cast<float>(value));
      break;
    case kBfloat16:
      access<uint16_t>(static_cast<uint16_t*>(memory) + at, 1)[0] = to_bfloat16(static_cast<float>(value));
      break;
    case kFloat32:
      access<float>(static_cast<float*>(memory) + at, 1)[0] = static_cast<float>(value);
      break;
    default:
      access<double>(static_cast<double*>(memory) + at, 1)[0] = value;
  }
}

double activate(uint32_t epilogue, double x) {
  if ((epilogue & 2) != 0) return x < 0 ? 0 : x;
  if ((epilogue & 32) != 0) return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

bool is_read_whole(const Layout& layout) { return layout.step >= layout.rows && layout.rows > 0 && layout.columns > 0; }

// Whether the sizes fit together, and there is a kernel for the types.
bool is_possible(const Operation& op, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool is_double = a.type == kFloat64;
  const bool fits_type =
      is_double ? op.compute == kIn64 && op.sum == kFloat64
                : (op.compute == kIn32 || (op.compute == kInTf32 && a.type == kFloat32)) && op.sum == kFloat32;
  const int64_t m = op.transposes_a ? a.columns : a.rows, k = op.transposes_a ? a.rows : a.columns;
  const int64_t other = op.transposes_b ? b.columns : b.rows, n = op.transposes_b ? b.rows : b.columns;
  const bool fits = m == d.rows && n == d.columns && k == other && c.rows == m && c.columns == n;
  const bool fits_batch = a.batch == d.batch && b.batch == d.batch && c.batch == d.batch;
  const bool is_whole = is_read_whole(a) && is_read_whole(b) && is_read_whole(c) && is_read_whole(d);
  // Real ones have no GELU of double precision either.
  return fits_type && a.type == b.type && b.type == c.type && c.type == d.type && fits && fits_batch && is_whole &&
         ((op.epilogue & 4) == 0 || op.bias != nullptr) && !(is_double && (op.epilogue & 32) != 0);
}

template <typename Value>
int set(Value* out, const void* value, size_t bytes) {
  if (bytes != sizeof(Value)) return kInvalidValue;
  std::memcpy(out, value, bytes);
  return 0;
}

template <typename Object>
int destroy(void* object) {
  delete static_cast<Object*>(object);
  return 0;
}

}  // namespace

EXPORT uint64_t fake_cublaslt_calls() {
  const std::lock_guard lock(mutex);
  return calls;
}
// How often the library was asked for an algorithm.
EXPORT uint64_t fake_cublaslt_asked() {
  const std::lock_guard lock(mutex);
  return asked;
}

EXPORT size_t cublasLtGetVersion() {
  const char* text = std::getenv("FAKE_PROVIDER_VERSION");
  return text != nullptr ? static_cast<size_t>(std::atoi(text)) : 120800;
}

EXPORT int cublasLtCreate(void** out) {
  if (fails("cublasLtCreate")) return 1;
  *out = new char;
  return 0;
}
EXPORT int cublasLtDestroy(void* handle) { return destroy<char>(handle); }

EXPORT int cublasLtMatmulDescCreate(void** out, int compute, int sum) {
  *out = new Operation{compute, sum};
  return 0;
}
EXPORT int cublasLtMatmulDescDestroy(void* operation) { return destroy<Operation>(operation); }
EXPORT int cublasLtMatmulDescSetAttribute(void* operation, int attribute, const void* value, size_t bytes) {
  auto* op = static_cast<Operation*>(operation);
  switch (attribute) {
    case 3:
      return set(&op->transposes_a, value, bytes);
    case 4:
      return set(&op->transposes_b, value, bytes);
    case 7:
      return set(&op->epilogue, value, bytes);
    case 8:
      return set(&op->bias, value, bytes);
    default:
      return kInvalidValue;
  }
}

EXPORT int cublasLtMatrixLayoutCreate(void** out, int type, uint64_t rows, uint64_t columns, int64_t step) {
  *out = new Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), step};
  return 0;
}
EXPORT int cublasLtMatrixLayoutDestroy(void* layout) { return destroy<Layout>(layout); }
EXPORT int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  auto* made = static_cast<Layout*>(layout);
  return attribute == 5   ? set(&made->batch, value, bytes)
         : attribute == 6 ? set(&made->batch_step, value, bytes)
                          : kInvalidValue;
}

EXPORT int cublasLtMatmulPreferenceCreate(void** out) {
  *out = new Preference;
  return 0;
}
EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) { return destroy<Preference>(preference); }
EXPORT int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  auto* made = static_cast<Preference*>(preference);
  if (attribute == 1) return set(&made->workspace, value, bytes);
  if (attribute == 3) return set(&made->reductions, value, bytes);
  return attribute >= 5 && attribute <= 8 ? set(&made->alignments[attribute - 5], value, bytes) : kInvalidValue;
}

EXPORT int cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c, void* d,
                                          void* preference, int wanted, Heuristic* out, int* count) {
  const std::lock_guard lock(mutex);
  ++asked;
  *count = 0;
  if (handle == nullptr || wanted < 1) return kInvalidValue;
  const auto& wishes = *static_cast<Preference*>(preference);
  const auto& op = *static_cast<Operation*>(operation);
  const auto& of_a = *static_cast<Layout*>(a);
  if (!is_possible(op, of_a, *static_cast<Layout*>(b), *static_cast<Layout*>(c), *static_cast<Layout*>(d)) ||
      fails("cublasLtMatmulAlgoGetHeuristic") || wishes.workspace < kWork || wishes.reductions != 2) {
    return kNotSupported;
  }
  *out = {};
  // What the algorithm is for, which is checked when it is used.
  out->algorithm.data[0] = kMagic;
  out->algorithm.data[1] = static_cast<uint64_t>(of_a.rows * 1000 + of_a.columns);
  out->algorithm.data[2] = op.epilogue;
  out->algorithm.data[3] = *std::min_element(wishes.alignments, wishes.alignments + 4);
  out->workspace = kWork;
  *count = 1;
  return 0;
}

EXPORT int cublasLtMatmul(void* handle, void* operation, const void* alpha, const void* a, void* layout_a,
                          const void* b, void* layout_b, const void* beta, const void* c, void* layout_c, void* d,
                          void* layout_d, const Algorithm* algorithm, void* workspace, size_t workspace_bytes,
                          void* stream) {
  const std::lock_guard lock(mutex);
  if (fails("cublasLtMatmul")) return kExecutionFailed;
  if (fails("cublasLtMatmul, not supported")) return kNotSupported;
  const Operation op = *static_cast<Operation*>(operation);
  const Layout of_a = *static_cast<Layout*>(layout_a), of_b = *static_cast<Layout*>(layout_b);
  const Layout of_c = *static_cast<Layout*>(layout_c), of_d = *static_cast<Layout*>(layout_d);
  if (handle == nullptr || workspace == nullptr || workspace_bytes != kWork ||
      !is_possible(op, of_a, of_b, of_c, of_d) || algorithm->data[0] != kMagic ||
      algorithm->data[1] != static_cast<uint64_t>(of_a.rows * 1000 + of_a.columns) ||
      algorithm->data[2] != op.epilogue) {
    return kInvalidValue;
  }
  for (const void* address : {a, b, c, static_cast<const void*>(d), op.bias}) {
    if (reinterpret_cast<uintptr_t>(address) % algorithm->data[3] != 0) return kInvalidValue;
  }
  const bool is_double = of_a.type == kFloat64;
  const auto scalar = [&](const void* value) {
    return is_double ? *static_cast<const double*>(value) : double{*static_cast<const float*>(value)};
  };
  const double factor = scalar(alpha), added = scalar(beta);
  ++calls;
  const auto run = [=] {
    const auto number = [&](const Layout& layout, const void* memory, int64_t i, int64_t row, int64_t column) {
      const double x = load(layout.type, memory, i * layout.batch_step + column * layout.step + row);
      return op.compute == kInTf32 ? to_tf32(static_cast<float>(x)) : x;
    };
    const int64_t depth = op.transposes_a ? of_a.rows : of_a.columns;
    for (int64_t i = 0; i < of_d.batch; ++i) {
      for (int64_t row = 0; row < of_d.rows; ++row) {
        for (int64_t column = 0; column < of_d.columns; ++column) {
          double sum = 0;
          for (int64_t k = 0; k < depth; ++k) {
            sum += (op.transposes_a ? number(of_a, a, i, k, row) : number(of_a, a, i, row, k)) *
                   (op.transposes_b ? number(of_b, b, i, column, k) : number(of_b, b, i, k, column));
          }
          sum *= factor;
          const int64_t at = i * of_d.batch_step + column * of_d.step + row;
          if (added != 0) sum += added * load(of_c.type, c, i * of_c.batch_step + column * of_c.step + row);
          if ((op.epilogue & 4) != 0) sum += load(of_d.type, op.bias, row);
          store(of_d.type, d, at, activate(op.epilogue, sum));
        }
      }
    }
    spoil(workspace, kWork);
  };
  return submit(stream, run) ? 0 : kExecutionFailed;
}
