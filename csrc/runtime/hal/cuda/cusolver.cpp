#include "hal/cuda/cusolver.h"

#include <array>
#include <string>

#include "hal/cuda/library_kernels.h"
#include "hal/cuda/vendor_library.h"

namespace aotpack::runtime::cuda {
namespace {

// cublasFillMode_t, cublasOperation_t, cusolverEigMode_t
constexpr int kLower = 0, kUpper = 1;
constexpr int kPlain = 0, kTransposed = 1, kAdjoint = 2;
constexpr int kNoVectors = 0, kVectors = 1;

// Of larger matrices the sizes of work areas do not fit the interface.
constexpr int64_t kMostRows = 1 << 15;
// Matrices are factored one after the other. The host is faster for many small ones.
constexpr int64_t kMostSmallMatrices = 16;
constexpr int64_t kSmallMatrix = 128;

// X(member, parameters): one for each of the four dtypes.
#define AOTPACK_CUSOLVER_FUNCTIONS(X)                                                                                 \
  X(potrf_bufferSize, (void* handle, int fill, int n, void* a, int lda, int* out))                                    \
  X(potrf, (void* handle, int fill, int n, void* a, int lda, void* work, int size, int* info))                        \
  X(getrf_bufferSize, (void* handle, int m, int n, void* a, int lda, int* out))                                       \
  X(getrf, (void* handle, int m, int n, void* a, int lda, void* work, int* pivots, int* info))                        \
  X(getrs, (void* handle, int operation, int n, int sides, const void* a, int lda, const int* pivots, void* b,        \
            int ldb, int* info))                                                                                      \
  X(eigh_bufferSize, (void* handle, int mode, int fill, int n, const void* a, int lda, const void* values, int* out)) \
  X(eigh, (void* handle, int mode, int fill, int n, void* a, int lda, void* values, void* work, int size, int* info)) \
  X(geqrf_bufferSize, (void* handle, int m, int n, void* a, int lda, int* out))                                       \
  X(geqrf, (void* handle, int m, int n, void* a, int lda, void* tau, void* work, int size, int* info))                \
  X(generate_bufferSize, (void* handle, int m, int n, int k, const void* a, int lda, const void* tau, int* out))      \
  X(generate, (void* handle, int m, int n, int k, void* a, int lda, const void* tau, void* work, int size, int* info))

// "potrf_bufferSize" of complex64 → "cusolverDnCpotrf_bufferSize".
std::string symbol_of(std::string name, int32_t dtype) {
  const bool is_complex = dtype == AOTPACK_DTYPE_COMPLEX64 || dtype == AOTPACK_DTYPE_COMPLEX128;
  const auto rename = [&](const char* ours, const char* real, const char* complex) {
    if (name.starts_with(ours)) name.replace(0, std::string(ours).size(), is_complex ? complex : real);
  };
  rename("eigh", "syevd", "heevd");
  rename("generate", "orgqr", "ungqr");
  const char* letter = dtype == AOTPACK_DTYPE_FLOAT32     ? "S"
                       : dtype == AOTPACK_DTYPE_FLOAT64   ? "D"
                       : dtype == AOTPACK_DTYPE_COMPLEX64 ? "C"
                                                          : "Z";
  return std::string("cusolverDn") + letter + name;
}

constexpr int32_t kSolverDtypes[] = {AOTPACK_DTYPE_FLOAT32, AOTPACK_DTYPE_FLOAT64, AOTPACK_DTYPE_COMPLEX64,
                                     AOTPACK_DTYPE_COMPLEX128};

const char* status_name(int status) {
  constexpr const char* kNames[] = {"SUCCESS",       "NOT_INITIALIZED", "ALLOC_FAILED",     "INVALID_VALUE",
                                    "ARCH_MISMATCH", "MAPPING_ERROR",   "EXECUTION_FAILED", "INTERNAL_ERROR"};
  return status >= 0 && static_cast<size_t>(status) < std::size(kNames) ? kNames[status] : "unknown error";
}

int64_t rows_of(const aotpack_module_tensor& tensor) { return tensor.sizes[tensor.rank - 2]; }
int64_t columns_of(const aotpack_module_tensor& tensor) { return tensor.sizes[tensor.rank - 1]; }

int64_t batch_of(const aotpack_module_tensor& matrices) {
  int64_t count = 1;
  for (int32_t axis = 0; axis + 2 < matrices.rank; ++axis) count *= matrices.sizes[axis];
  return count;
}

// The first element of the i-th of the tensors with the last `inner` axes.
void* part_of(const aotpack_module_tensor& tensor, int64_t i, int32_t inner) {
  int64_t offset = 0;
  for (int32_t axis = tensor.rank - inner; axis-- > 0;) {
    offset += i % tensor.sizes[axis] * tensor.strides[axis];
    i /= tensor.sizes[axis];
  }
  return static_cast<char*>(tensor.data) + offset * static_cast<int64_t>(library_item(tensor.dtype));
}
void* matrix_of(const aotpack_module_tensor& tensor, int64_t i) { return part_of(tensor, i, 2); }
void* vector_of(const aotpack_module_tensor& tensor, int64_t i) { return part_of(tensor, i, 1); }
int* integers_of(const aotpack_module_tensor& tensor, int64_t i, int32_t inner) {
  return static_cast<int*>(part_of(tensor, i, inner));
}

int as_int(int64_t size) { return static_cast<int>(size); }

// All axes, with columns that lie next to each other.
std::vector<int32_t> column_major(const aotpack_module_tensor& tensor) {
  std::vector<int32_t> order(static_cast<size_t>(tensor.rank));
  for (int32_t axis = 0; axis < tensor.rank; ++axis) order[static_cast<size_t>(axis)] = axis;
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return order;
}

// `rows` of `columns`, from the first ones on.
aotpack_module_tensor corner(aotpack_module_tensor tensor, int64_t rows, int64_t columns) {
  tensor.sizes[tensor.rank - 2] = rows;
  tensor.sizes[tensor.rank - 1] = columns;
  return tensor;
}

}  // namespace

struct CusolverFunctions {
#define AOTPACK_MEMBER(name, parameters) int(*name) parameters = nullptr;
  AOTPACK_CUSOLVER_FUNCTIONS(AOTPACK_MEMBER)
#undef AOTPACK_MEMBER
};

struct CusolverLibrary {
  int (*cusolverGetVersion)(int* out) = nullptr;
  int (*cusolverDnCreate)(void** out) = nullptr;
  int (*cusolverDnDestroy)(void* handle) = nullptr;
  int (*cusolverDnSetStream)(void* handle, StreamHandle stream) = nullptr;
  std::array<CusolverFunctions, 4> functions;  // in the order of kSolverDtypes
  int version = 0;

  bool load() {
    void* handle = open_library({"libcusolver.so.12", "libcusolver.so.11"});
    if (handle == nullptr) return false;
    bool is_whole = find_function(handle, "cusolverGetVersion", &cusolverGetVersion) &&
                    find_function(handle, "cusolverDnCreate", &cusolverDnCreate) &&
                    find_function(handle, "cusolverDnDestroy", &cusolverDnDestroy) &&
                    find_function(handle, "cusolverDnSetStream", &cusolverDnSetStream);
    for (size_t i = 0; i < functions.size(); ++i) {
#define AOTPACK_FIND(name, parameters) \
  is_whole = find_function(handle, symbol_of(#name, kSolverDtypes[i]).c_str(), &functions[i].name) && is_whole;
      AOTPACK_CUSOLVER_FUNCTIONS(AOTPACK_FIND)
#undef AOTPACK_FIND
    }
    return is_whole && cusolverGetVersion(&version) == 0 && version >= 11000 && version < 13000;
  }

  const CusolverFunctions& of(const aotpack_module_tensor& tensor) const {
    return functions[static_cast<size_t>(std::find(std::begin(kSolverDtypes), std::end(kSolverDtypes), tensor.dtype) -
                                         kSolverDtypes)];
  }
};

const CusolverLibrary* LinearAlgebra::library() {
  // Never destroyed: contexts may be released while the process ends.
  static CusolverLibrary& known = *new CusolverLibrary;
  static const bool is_usable = known.load();
  return is_usable ? &known : nullptr;
}

LinearAlgebra::LinearAlgebra(const CusolverLibrary& library) : library_(library) {
  if (library_.cusolverDnCreate(&handle_) != 0) handle_ = nullptr;
}

LinearAlgebra::~LinearAlgebra() {
  if (handle_ != nullptr) library_.cusolverDnDestroy(handle_);
}

void LinearAlgebra::check(int status, const char* function) const {
  if (status == 0) return;
  fail(AOTPACK_DEVICE_FAILED, "cuSOLVER %d.%d: %s fails with CUSOLVER_STATUS_%s (%d)", library_.version / 1000,
       library_.version % 1000 / 100, function, status_name(status), status);
}

bool LinearAlgebra::begin(const aotpack_module_tensor& matrices, LibraryWork& work) {
  if (handle_ == nullptr || matrices.dtype == AOTPACK_DTYPE_INT32) return false;
  const int64_t rows = rows_of(matrices), columns = columns_of(matrices);
  if (rows > kMostRows || columns > kMostRows) return false;
  if (std::min(rows, columns) < kSmallMatrix && batch_of(matrices) > kMostSmallMatrices) return false;
  check(library_.cusolverDnSetStream(handle_, work.stream().busy()), "cusolverDnSetStream");
  return true;
}

// [A, factor, info]; upper.
bool LinearAlgebra::cholesky(const aotpack_module_library_call& call, LibraryWork& work) {
  const auto &a = call.tensors[0], &factor = call.tensors[1], &info = call.tensors[2];
  if (!begin(a, work)) return false;
  const CusolverFunctions& functions = library_.of(a);
  const int n = as_int(rows_of(a)), fill = call.numbers[0] != 0 ? kUpper : kLower;
  int size = 0;
  if (functions.potrf_bufferSize(handle_, fill, n, factor.data, n, &size) != 0) return false;
  const size_t item = library_item(a.dtype);
  void* area = work.take(static_cast<size_t>(size) * item);
  work.copy(factor, a);
  for (int64_t i = 0; i < batch_of(a); ++i) {
    check(functions.potrf(handle_, fill, n, matrix_of(factor, i), n, area, size, integers_of(info, i, 0)), "potrf");
  }
  clear_triangle(work, factor.data, batch_of(a), n, n, item, fill == kUpper);
  return true;
}

// [A, LU, pivots, info]
bool LinearAlgebra::lu_factor(const aotpack_module_library_call& call, LibraryWork& work) {
  const auto &a = call.tensors[0], &lu = call.tensors[1], &pivots = call.tensors[2], &info = call.tensors[3];
  if (!begin(a, work)) return false;
  const CusolverFunctions& functions = library_.of(a);
  const int m = as_int(rows_of(a)), n = as_int(columns_of(a));
  int size = 0;
  if (functions.getrf_bufferSize(handle_, m, n, lu.data, m, &size) != 0) return false;
  void* area = work.take(static_cast<size_t>(size) * library_item(a.dtype));
  work.copy(lu, a);
  for (int64_t i = 0; i < batch_of(a); ++i) {
    check(functions.getrf(handle_, m, n, matrix_of(lu, i), m, area, integers_of(pivots, i, 1), integers_of(info, i, 0)),
          "getrf");
  }
  return true;
}

// [LU, pivots, B, X]; left, adjoint. With the factors on the right, X A = B is A^T X^T = B^T, and X^T is column-major.
bool LinearAlgebra::lu_solve(const aotpack_module_library_call& call, LibraryWork& work) {
  const auto &lu = call.tensors[0], &pivots = call.tensors[1], &b = call.tensors[2], &x = call.tensors[3];
  const bool left = call.numbers[0] != 0, adjoint = call.numbers[1] != 0;
  const bool is_real = lu.dtype == AOTPACK_DTYPE_FLOAT32 || lu.dtype == AOTPACK_DTYPE_FLOAT64;
  if ((!left && adjoint && !is_real) || !begin(lu, work)) return false;
  const CusolverFunctions& functions = library_.of(lu);
  const int operation = left ? (adjoint ? kAdjoint : kPlain) : (adjoint ? kPlain : kTransposed);
  const int n = as_int(rows_of(lu));
  const int64_t sides = left ? columns_of(x) : rows_of(x);
  if (sides > kMostRows * kMostRows / n) return false;
  auto* info = static_cast<int*>(work.take(sizeof(int)));
  work.copy(x, b);
  for (int64_t i = 0; i < batch_of(x); ++i) {
    check(functions.getrs(handle_, operation, n, as_int(sides), matrix_of(lu, i), n, integers_of(pivots, i, 1),
                          matrix_of(x, i), n, info),
          "getrs");
  }
  return true;
}

// [LU, pivots, inverse]
bool LinearAlgebra::lu_inverse(const aotpack_module_library_call& call, LibraryWork& work) {
  const auto &lu = call.tensors[0], &pivots = call.tensors[1], &inverse = call.tensors[2];
  if (!begin(lu, work)) return false;
  const CusolverFunctions& functions = library_.of(lu);
  const int n = as_int(rows_of(lu));
  const size_t item = library_item(lu.dtype);
  // Of the identity, by one number and a stride of 0.
  const bool is_single = lu.dtype == AOTPACK_DTYPE_FLOAT32 || lu.dtype == AOTPACK_DTYPE_COMPLEX64;
  const size_t real = is_single ? sizeof(float) : sizeof(double);
  auto* one = static_cast<char*>(work.take(item));
  work.stream().fill(one, 0, 1, item);
  work.stream().fill(one, is_single ? 0x3f800000 : 0x3ff0000000000000, real, 1);
  work.stream().fill(inverse.data, 0, 1, static_cast<size_t>(element_count(inverse)) * item);
  const int64_t sizes[] = {batch_of(lu), n}, to[] = {int64_t{n} * n, int64_t{n} + 1}, from[] = {0, 0};
  work.stream().copy_strided_on_device(inverse.data, to, one, from, sizes, 2, item);
  auto* info = static_cast<int*>(work.take(sizeof(int)));
  for (int64_t i = 0; i < batch_of(lu); ++i) {
    check(functions.getrs(handle_, kPlain, n, n, matrix_of(lu, i), n, integers_of(pivots, i, 1), matrix_of(inverse, i),
                          n, info),
          "getrs");
  }
  return true;
}

// [A, vectors, values, info]; upper, whether the vectors are wanted.
bool LinearAlgebra::eigh(const aotpack_module_library_call& call, LibraryWork& work) {
  const auto &a = call.tensors[0], &vectors = call.tensors[1], &values = call.tensors[2], &info = call.tensors[3];
  if (!begin(a, work)) return false;
  const CusolverFunctions& functions = library_.of(a);
  const int n = as_int(rows_of(a)), fill = call.numbers[0] != 0 ? kUpper : kLower;
  const int mode = call.numbers[1] != 0 ? kVectors : kNoVectors;
  int size = 0;
  if (functions.eigh_bufferSize(handle_, mode, fill, n, vectors.data, n, values.data, &size) != 0) return false;
  void* area = work.take(static_cast<size_t>(size) * library_item(a.dtype));
  work.copy(vectors, a);
  for (int64_t i = 0; i < batch_of(a); ++i) {
    check(functions.eigh(handle_, mode, fill, n, matrix_of(vectors, i), n, vector_of(values, i), area, size,
                         integers_of(info, i, 0)),
          "syevd");
  }
  return true;
}

// [A, Q, R] or [A, R]. Q has as many columns as R has rows.
bool LinearAlgebra::qr(const aotpack_module_library_call& call, LibraryWork& work) {
  const auto &a = call.tensors[0], &r = call.tensors[call.num_tensors - 1];
  if (!begin(a, work)) return false;
  const CusolverFunctions& functions = library_.of(a);
  const size_t item = library_item(a.dtype);
  const int m = as_int(rows_of(a)), n = as_int(columns_of(a)), k = std::min(m, n);
  const aotpack_module_tensor reflectors = work.make(a, column_major(a));
  int size = 0;
  if (functions.geqrf_bufferSize(handle_, m, n, reflectors.data, m, &size) != 0) return false;
  auto* tau = static_cast<char*>(work.take(static_cast<size_t>(batch_of(a) * k) * item));
  void* area = work.take(static_cast<size_t>(size) * item);
  auto* info = static_cast<int*>(work.take(sizeof(int)));
  const auto scales = [&](int64_t i) { return tau + static_cast<size_t>(i * k) * item; };
  work.copy(reflectors, a);
  for (int64_t i = 0; i < batch_of(a); ++i) {
    check(functions.geqrf(handle_, m, n, matrix_of(reflectors, i), m, scales(i), area, size, info), "geqrf");
  }
  const int rank = as_int(rows_of(r));
  work.copy(r, corner(reflectors, rank, n));
  clear_triangle(work, r.data, batch_of(a), rank, n, item, true);
  if (call.num_tensors == 2) return true;
  const aotpack_module_tensor& q = call.tensors[1];
  if (functions.generate_bufferSize(handle_, m, rank, k, q.data, m, tau, &size) != 0) return false;
  area = work.take(static_cast<size_t>(size) * item);
  work.copy(corner(q, m, k), corner(reflectors, m, k));
  for (int64_t i = 0; i < batch_of(a); ++i) {
    check(functions.generate(handle_, m, rank, k, matrix_of(q, i), m, scales(i), area, size, info), "orgqr");
  }
  return true;
}

}  // namespace aotpack::runtime::cuda
