#include "hal/cuda/cublaslt.h"

#include <bit>

#include "hal/cuda/vendor_library.h"

namespace aotpack::runtime::cuda {
namespace {

// cudaDataType, cublasComputeType_t, cublasOperation_t
constexpr int kFloat32 = 0, kFloat64 = 1, kFloat16 = 2, kBfloat16 = 14;
constexpr int kIn32 = 68, kIn64 = 70, kInTf32 = 77;
constexpr int32_t kPlain = 0, kTransposed = 1;
// cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t
constexpr int kTransposesA = 3, kTransposesB = 4, kEpilogue = 7, kBiasPointer = 8;
constexpr int kBatchCount = 5, kBatchStride = 6;
constexpr int kMostWorkspace = 1, kReductions = 3, kAlignmentA = 5, kAlignmentD = 8;
// cublasLtEpilogue_t: bits, of which none is 1.
constexpr uint32_t kNothing = 1, kRelu = 2, kBias = 4, kGelu = 32;
// Parts of long sums are added up in the precision of the sums, in a fixed order.
constexpr uint32_t kInPrecision = 2;
constexpr int kNotSupported = 15;

constexpr uint64_t kWorkspace = uint64_t{32} << 20;
// More does not matter to any kernel.
constexpr uintptr_t kBestAlignment = 16;
constexpr int64_t kMostInt = INT32_MAX;

// Numbers of `product`.
enum : uint8_t { kActivation, kTf32, kAlpha, kHasBias, kHasResidual, kNumbers };
// Members of a key: kAligned is what all addresses are multiples of; of a matrix, whether it is transposed, elements
// from column to column, and from one of the batch to the next.
enum : uint8_t { kDtype, kFlags, kAligned, kBatch, kM, kN, kK, kOpA, kLdA, kStepA, kOpB, kLdB, kStepB, kCompute, kSum };

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
static_assert(sizeof(Heuristic) == 96);

#define AOTPACK_CUBLASLT_FUNCTIONS(X)                                                                                \
  X(cublasLtCreate, (void** out))                                                                                    \
  X(cublasLtDestroy, (void* handle))                                                                                 \
  X(cublasLtMatmulDescCreate, (void** out, int compute, int scale))                                                  \
  X(cublasLtMatmulDescDestroy, (void* operation))                                                                    \
  X(cublasLtMatmulDescSetAttribute, (void* operation, int attribute, const void* value, size_t bytes))               \
  X(cublasLtMatrixLayoutCreate, (void** out, int type, uint64_t rows, uint64_t columns, int64_t step))               \
  X(cublasLtMatrixLayoutDestroy, (void* layout))                                                                     \
  X(cublasLtMatrixLayoutSetAttribute, (void* layout, int attribute, const void* value, size_t bytes))                \
  X(cublasLtMatmulPreferenceCreate, (void** out))                                                                    \
  X(cublasLtMatmulPreferenceDestroy, (void* preference))                                                             \
  X(cublasLtMatmulPreferenceSetAttribute, (void* preference, int attribute, const void* value, size_t bytes))        \
  X(cublasLtMatmulAlgoGetHeuristic, (void* handle, void* operation, void* a, void* b, void* c, void* d,              \
                                     void* preference, int wanted, Heuristic* out, int* out_count))                  \
  X(cublasLtMatmul, (void* handle, void* operation, const void* alpha, const void* a, void* layout_a, const void* b, \
                     void* layout_b, const void* beta, const void* c, void* layout_c, void* d, void* layout_d,       \
                     const Algorithm* algorithm, void* workspace, size_t workspace_bytes, StreamHandle stream))

const char* status_name(int status) {
  switch (status) {
    case 1:
      return "NOT_INITIALIZED";
    case 3:
      return "ALLOC_FAILED";
    case 7:
      return "INVALID_VALUE";
    case 8:
      return "ARCH_MISMATCH";
    case 11:
      return "MAPPING_ERROR";
    case 13:
      return "EXECUTION_FAILED";
    case 14:
      return "INTERNAL_ERROR";
    case kNotSupported:
      return "NOT_SUPPORTED";
    default:
      return "unknown error";
  }
}

int type_of(int32_t dtype) {
  switch (dtype) {
    case AOTPACK_DTYPE_FLOAT16:
      return kFloat16;
    case AOTPACK_DTYPE_BFLOAT16:
      return kBfloat16;
    case AOTPACK_DTYPE_FLOAT64:
      return kFloat64;
    default:
      return kFloat32;
  }
}

// How cuBLASLt, whose matrices are column-major, reads the transpose of a row-major matrix [batch, rows, columns].
struct Layout {
  int32_t operation;
  int64_t step;  // from column to column
};

// False where neither the elements of rows nor those of columns lie side by side.
bool find_layout(const aotpack_module_tensor& matrix, Layout* out) {
  const int64_t rows = matrix.sizes[1], columns = matrix.sizes[2];
  const int64_t row_step = rows == 1 ? columns : matrix.strides[1];
  const int64_t column_step = columns == 1 ? rows : matrix.strides[2];
  if ((columns == 1 || column_step == 1) && row_step >= columns) {
    *out = {kPlain, row_step};
    return true;
  }
  if ((rows == 1 || row_step == 1) && column_step >= rows) {
    *out = {kTransposed, column_step};
    return true;
  }
  return false;
}

bool is_dense(const aotpack_module_tensor& tensor) {
  int64_t step = 1;
  for (int32_t axis = tensor.rank; axis-- > 0;) {
    if (tensor.sizes[axis] != 1 && tensor.strides[axis] != step) return false;
    step *= tensor.sizes[axis];
  }
  return true;
}

bool is_like(const aotpack_module_tensor& one, const aotpack_module_tensor& other) {
  return one.dtype == other.dtype && one.rank == other.rank && std::equal(one.sizes, one.sizes + one.rank, other.sizes);
}

}  // namespace

struct CublasLtLibrary {
#define AOTPACK_MEMBER(symbol, parameters) int(*symbol) parameters = nullptr;
  AOTPACK_CUBLASLT_FUNCTIONS(AOTPACK_MEMBER)
#undef AOTPACK_MEMBER
  size_t (*cublasLtGetVersion)() = nullptr;
  size_t version = 0;

  bool load() {
    void* handle = open_library({"libcublasLt.so.13", "libcublasLt.so.12"});
    if (handle == nullptr) return false;
    bool is_whole = find_function(handle, "cublasLtGetVersion", &cublasLtGetVersion);
#define AOTPACK_FIND(symbol, parameters) is_whole = find_function(handle, #symbol, &this->symbol) && is_whole;
    AOTPACK_CUBLASLT_FUNCTIONS(AOTPACK_FIND)
#undef AOTPACK_FIND
    if (!is_whole) return false;
    version = cublasLtGetVersion();
    return version >= 120000 && version < 140000;
  }
};

const CublasLtLibrary* MatrixProducts::library() {
  // Never destroyed: contexts may be released while the process ends.
  static CublasLtLibrary& known = *new CublasLtLibrary;
  static const bool is_usable = known.load();
  return is_usable ? &known : nullptr;
}

bool MatrixProducts::takes(int32_t dtype) noexcept {
  return dtype == AOTPACK_DTYPE_FLOAT16 || dtype == AOTPACK_DTYPE_BFLOAT16 || dtype == AOTPACK_DTYPE_FLOAT32 ||
         dtype == AOTPACK_DTYPE_FLOAT64;
}

struct MatrixProducts::Plan {
  explicit Plan(const CublasLtLibrary& owner) : library(owner) {}
  ~Plan() {
    for (void* layout : {a, b, d}) {
      if (layout != nullptr) library.cublasLtMatrixLayoutDestroy(layout);
    }
    if (operation != nullptr) library.cublasLtMatmulDescDestroy(operation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // A matrix of these sizes, as often as the batch has it, or NULL.
  void* layout(int type, int64_t rows, int64_t columns, int64_t step, int64_t batch, int64_t batch_step) const {
    void* made = nullptr;
    const auto size = [](int64_t n) { return static_cast<uint64_t>(n); };
    if (library.cublasLtMatrixLayoutCreate(&made, type, size(rows), size(columns), step) != 0) return nullptr;
    const auto count = static_cast<int32_t>(batch);
    if (library.cublasLtMatrixLayoutSetAttribute(made, kBatchCount, &count, sizeof(count)) == 0 &&
        library.cublasLtMatrixLayoutSetAttribute(made, kBatchStride, &batch_step, sizeof(batch_step)) == 0) {
      return made;
    }
    library.cublasLtMatrixLayoutDestroy(made);
    return nullptr;
  }
  template <typename Value>
  bool set(int attribute, const Value& value) const {
    return library.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)) == 0;
  }

  const CublasLtLibrary& library;
  void* operation = nullptr;
  void *a = nullptr, *b = nullptr, *d = nullptr;
  Algorithm algorithm = {};
  size_t work_bytes = 0;
};

MatrixProducts::MatrixProducts(const CublasLtLibrary& library) : library_(library) {
  if (library_.cublasLtCreate(&handle_) != 0) handle_ = nullptr;
}

MatrixProducts::~MatrixProducts() {
  if (handle_ != nullptr) library_.cublasLtDestroy(handle_);
}

void MatrixProducts::check(int status, const char* function) const {
  if (status == 0) return;
  fail(AOTPACK_DEVICE_FAILED, "cuBLASLt %zu.%zu: %s fails with CUBLAS_STATUS_%s (%d)", library_.version / 10000,
       library_.version % 10000 / 100, function, status_name(status), status);
}

std::unique_ptr<MatrixProducts::Plan> MatrixProducts::make_plan(const Key& key, const void* bias) const {
  auto plan = std::make_unique<Plan>(library_);
  const int type = type_of(static_cast<int32_t>(key[kDtype]));
  const int64_t m = key[kM], n = key[kN], k = key[kK], batch = key[kBatch];
  const auto op_a = static_cast<int32_t>(key[kOpA]), op_b = static_cast<int32_t>(key[kOpB]);
  // The transposes: D' [n, m] = B' [n, k] A' [k, m].
  plan->a = op_b == kPlain ? plan->layout(type, n, k, key[kLdB], batch, key[kStepB])
                           : plan->layout(type, k, n, key[kLdB], batch, key[kStepB]);
  plan->b = op_a == kPlain ? plan->layout(type, k, m, key[kLdA], batch, key[kStepA])
                           : plan->layout(type, m, k, key[kLdA], batch, key[kStepA]);
  plan->d = plan->layout(type, n, m, n, batch, m * n);
  if (plan->a == nullptr || plan->b == nullptr || plan->d == nullptr) return nullptr;
  if (library_.cublasLtMatmulDescCreate(&plan->operation, static_cast<int>(key[kCompute]),
                                        static_cast<int>(key[kSum])) != 0 ||
      !plan->set(kTransposesA, op_b) || !plan->set(kTransposesB, op_a) ||
      !plan->set(kEpilogue, static_cast<uint32_t>(key[kFlags])) ||
      (bias != nullptr && !plan->set(kBiasPointer, bias))) {
    return nullptr;
  }
  void* preference = nullptr;
  if (library_.cublasLtMatmulPreferenceCreate(&preference) != 0) return nullptr;
  const auto prefer = [&](int attribute, const auto& value) {
    return library_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)) == 0;
  };
  bool is_set = prefer(kMostWorkspace, kWorkspace) && prefer(kReductions, kInPrecision);
  for (int attribute = kAlignmentA; attribute <= kAlignmentD; ++attribute) {
    is_set = is_set && prefer(attribute, static_cast<uint32_t>(key[kAligned]));
  }
  Heuristic found = {};
  int count = 0;
  const bool is_found = is_set &&
                        library_.cublasLtMatmulAlgoGetHeuristic(handle_, plan->operation, plan->a, plan->b, plan->d,
                                                                plan->d, preference, 1, &found, &count) == 0 &&
                        count == 1 && found.state == 0;
  library_.cublasLtMatmulPreferenceDestroy(preference);
  if (!is_found) return nullptr;
  plan->algorithm = found.algorithm;
  plan->work_bytes = found.workspace;
  return plan;
}

bool MatrixProducts::product(const aotpack_module_library_call& call, LibraryWork& work) {
  if (handle_ == nullptr || call.num_numbers != kNumbers) return false;
  const int64_t* numbers = call.numbers;
  const bool has_bias = numbers[kHasBias] != 0, has_residual = numbers[kHasResidual] != 0;
  if (call.num_tensors != uint32_t{3} + (has_bias ? 1 : 0) + (has_residual ? 1 : 0)) return false;
  const aotpack_module_tensor &a = call.tensors[0], &b = call.tensors[1], &out = call.tensors[call.num_tensors - 1];
  const aotpack_module_tensor* bias = has_bias ? &call.tensors[2] : nullptr;
  const aotpack_module_tensor* residual = has_residual ? &call.tensors[call.num_tensors - 2] : nullptr;
  Layout of_a, of_b;
  if (a.rank != 3 || b.rank != 3 || out.rank != 3 || a.dtype != out.dtype || b.dtype != out.dtype || !is_dense(out) ||
      !find_layout(a, &of_a) || !find_layout(b, &of_b)) {
    return false;
  }
  const int64_t batch = out.sizes[0], m = out.sizes[1], n = out.sizes[2], k = a.sizes[2];
  if (a.sizes[0] != batch || b.sizes[0] != batch || a.sizes[1] != m || b.sizes[1] != k || b.sizes[2] != n) return false;
  if (std::max({batch, m, n, k}) > kMostInt) return false;
  if (bias != nullptr && (bias->rank != 1 || bias->sizes[0] != n || bias->dtype != out.dtype || !is_dense(*bias))) {
    return false;
  }
  if (residual != nullptr && (!is_like(*residual, out) || !is_dense(*residual))) return false;

  const bool is_double = out.dtype == AOTPACK_DTYPE_FLOAT64;
  uint32_t epilogue = has_bias ? kBias : 0;
  // Numbers of activations as modules have them.
  if (numbers[kActivation] == 1)
    epilogue |= kRelu;
  else if (numbers[kActivation] == 3)
    epilogue |= kGelu;
  else if (numbers[kActivation] != 0)
    return false;
  if (epilogue == 0) epilogue = kNothing;

  uintptr_t addresses = kBestAlignment;
  for (uint32_t i = 0; i < call.num_tensors; ++i) addresses |= reinterpret_cast<uintptr_t>(call.tensors[i].data);
  const auto aligned = static_cast<int64_t>(addresses & (~addresses + 1));
  const int compute = is_double ? kIn64 : numbers[kTf32] != 0 ? kInTf32 : kIn32;
  const auto step = [&](const aotpack_module_tensor& matrix) { return batch == 1 ? 0 : matrix.strides[0]; };
  const Key key{out.dtype,
                epilogue,
                aligned,
                batch,
                m,
                n,
                k,
                of_a.operation,
                of_a.step,
                step(a),
                of_b.operation,
                of_b.step,
                step(b),
                compute,
                is_double ? kFloat64 : kFloat32};
  Plan* plan = plans_.find(key, [&] { return make_plan(key, bias == nullptr ? nullptr : bias->data); });
  if (plan == nullptr) return false;
  if (bias != nullptr && !plan->set(kBiasPointer, bias->data)) return false;

  const auto alpha = std::bit_cast<double>(numbers[kAlpha]);
  const double beta = has_residual ? 1 : 0;
  const auto single_alpha = static_cast<float>(alpha), single_beta = static_cast<float>(beta);
  const auto scalar = [&](const double& wide, const float& narrow) {
    return is_double ? static_cast<const void*>(&wide) : &narrow;
  };
  void* workspace = plan->work_bytes == 0 ? nullptr : work.take(plan->work_bytes);
  const int status =
      library_.cublasLtMatmul(handle_, plan->operation, scalar(alpha, single_alpha), b.data, plan->a, a.data, plan->b,
                              scalar(beta, single_beta), residual == nullptr ? out.data : residual->data, plan->d,
                              out.data, plan->d, &plan->algorithm, workspace, plan->work_bytes, work.stream().busy());
  if (status == kNotSupported) {
    plans_.refuse(key);
    return false;
  }
  check(status, "cublasLtMatmul");
  return true;
}

}  // namespace aotpack::runtime::cuda
