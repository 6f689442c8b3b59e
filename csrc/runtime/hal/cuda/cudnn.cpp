#include "hal/cuda/cudnn.h"

#include "hal/cuda/cublaslt.h"
#include "hal/cuda/vendor_library.h"

namespace aotpack::runtime::cuda {
namespace {

// cudnnDataType_t, cudnnTensorFormat_t, cudnnConvolutionMode_t, cudnnMathType_t, cudnnActivationMode_t,
// cudnnNanPropagation_t
constexpr int kFloat32 = 0, kFloat16 = 2, kBfloat16 = 9;
constexpr int kChannelsLast = 1, kCrossCorrelation = 1;
constexpr int kDefaultMath = 0, kTensorCores = 1, kWithoutTensorCores = 3;
constexpr int kRelu = 1, kIdentity = 5, kKeepsNan = 1;
// Algorithms whose sums have single precision and one order: of cudnnConvolutionFwdAlgo_t the implicit products, of
// cudnnConvolutionBwdDataAlgo_t the one without atomic additions.
constexpr int kProduct = 0, kPrecomputedProduct = 1, kOrderedGradient = 1;
constexpr int kMostAlgorithms = 8;
constexpr int kMostDims = 5;

constexpr uintptr_t kAlignment = 16;
constexpr size_t kMostWorkspace = size_t{1} << 28;
constexpr int64_t kMostElements = INT32_MAX;

// Numbers of `convolution`: steps, pads and dilations of three dims come first.
enum : uint8_t { kSteps = 0, kPads = 3, kDilations = 6, kGroups = 9, kTransposed, kActivation, kTf32, kHasBias };
enum : uint8_t { kHasResidual = kHasBias + 1, kNumbers };

struct Algorithm {
  int number;
  int status;
  float time;
  size_t work_bytes;
  int is_deterministic;
  int math;
  int reserved[3];
};
static_assert(sizeof(Algorithm) == 48);

#define AOTPACK_CUDNN_FUNCTIONS(X)                                                                                  \
  X(cudnnCreate, (void** out))                                                                                      \
  X(cudnnDestroy, (void* handle))                                                                                   \
  X(cudnnSetStream, (void* handle, StreamHandle stream))                                                            \
  X(cudnnCreateTensorDescriptor, (void** out))                                                                      \
  X(cudnnDestroyTensorDescriptor, (void* tensor))                                                                   \
  X(cudnnSetTensorNdDescriptor, (void* tensor, int type, int rank, const int* sizes, const int* strides))           \
  X(cudnnCreateFilterDescriptor, (void** out))                                                                      \
  X(cudnnDestroyFilterDescriptor, (void* filter))                                                                   \
  X(cudnnSetFilterNdDescriptor, (void* filter, int type, int format, int rank, const int* sizes))                   \
  X(cudnnCreateConvolutionDescriptor, (void** out))                                                                 \
  X(cudnnDestroyConvolutionDescriptor, (void* convolution))                                                         \
  X(cudnnSetConvolutionNdDescriptor,                                                                                \
    (void* convolution, int dims, const int* pads, const int* steps, const int* dilations, int mode, int sum_type)) \
  X(cudnnSetConvolutionGroupCount, (void* convolution, int groups))                                                 \
  X(cudnnSetConvolutionMathType, (void* convolution, int math))                                                     \
  X(cudnnCreateActivationDescriptor, (void** out))                                                                  \
  X(cudnnDestroyActivationDescriptor, (void* activation))                                                           \
  X(cudnnSetActivationDescriptor, (void* activation, int mode, int nan, double coefficient))                        \
  X(cudnnGetConvolutionForwardAlgorithm_v7,                                                                         \
    (void* handle, void* x, void* w, void* convolution, void* y, int wanted, int* out_count, Algorithm* out))       \
  X(cudnnGetConvolutionForwardWorkspaceSize,                                                                        \
    (void* handle, void* x, void* w, void* convolution, void* y, int algorithm, size_t* out))                       \
  X(cudnnConvolutionForward,                                                                                        \
    (void* handle, const void* alpha, void* of_x, const void* x, void* of_w, const void* w, void* convolution,      \
     int algorithm, void* workspace, size_t work_bytes, const void* beta, void* of_y, void* y))                     \
  X(cudnnConvolutionBiasActivationForward,                                                                          \
    (void* handle, const void* alpha, void* of_x, const void* x, void* of_w, const void* w, void* convolution,      \
     int algorithm, void* workspace, size_t work_bytes, const void* beta, void* of_z, const void* z, void* of_bias, \
     const void* bias, void* activation, void* of_y, void* y))                                                      \
  X(cudnnGetConvolutionBackwardDataAlgorithm_v7,                                                                    \
    (void* handle, void* w, void* dy, void* convolution, void* dx, int wanted, int* out_count, Algorithm* out))     \
  X(cudnnGetConvolutionBackwardDataWorkspaceSize,                                                                   \
    (void* handle, void* w, void* dy, void* convolution, void* dx, int algorithm, size_t* out))                     \
  X(cudnnConvolutionBackwardData,                                                                                   \
    (void* handle, const void* alpha, void* of_w, const void* w, void* of_dy, const void* dy, void* convolution,    \
     int algorithm, void* workspace, size_t work_bytes, const void* beta, void* of_dx, void* dx))

int type_of(int32_t dtype) {
  return dtype == AOTPACK_DTYPE_FLOAT16 ? kFloat16 : dtype == AOTPACK_DTYPE_BFLOAT16 ? kBfloat16 : kFloat32;
}

// Axes from outermost to innermost: channels, the second axis, last.
constexpr int32_t kInnermost[] = {0, 2, 3, 4, 1};

bool has_channels_innermost(const aotpack_module_tensor& tensor) {
  int64_t step = 1;
  for (size_t i = std::size(kInnermost); i-- > 0;) {
    const int32_t axis = kInnermost[i];
    if (tensor.sizes[axis] != 1 && tensor.strides[axis] != step) return false;
    step *= tensor.sizes[axis];
  }
  return true;
}

// Before cuDNN has submitted anything: it finds arguments bad that it does not support, too.
bool is_refusal(int status) {
  // Of cuDNN 9, and of 8.
  return (status >= 2000 && status < 4000) || status == 3 || status == 6 || status == 9;
}

// The tensors of a call, by name.
struct Operands {
  explicit Operands(const aotpack_module_library_call& call)
      : x(call.tensors[0]),
        weight(call.tensors[1]),
        bias(call.numbers[kHasBias] != 0 ? &call.tensors[2] : nullptr),
        residual(call.numbers[kHasResidual] != 0 ? &call.tensors[call.num_tensors - 2] : nullptr),
        out(call.tensors[call.num_tensors - 1]) {}

  const aotpack_module_tensor &x, &weight;
  const aotpack_module_tensor *bias, *residual;
  const aotpack_module_tensor& out;
};

// Whether tensors and numbers are those of a convolution.
bool is_valid(const aotpack_module_library_call& call) {
  if (call.num_numbers != kNumbers) return false;
  const int64_t* numbers = call.numbers;
  if (call.num_tensors != uint32_t{3} + (numbers[kHasBias] != 0 ? 1 : 0) + (numbers[kHasResidual] != 0 ? 1 : 0)) {
    return false;
  }
  const Operands given(call);
  for (const aotpack_module_tensor* tensor : {&given.x, &given.weight, &given.out}) {
    if (tensor->rank != kMostDims || tensor->dtype != given.out.dtype || element_count(*tensor) > kMostElements ||
        reinterpret_cast<uintptr_t>(tensor->data) % kAlignment != 0) {
      return false;
    }
  }
  if (given.bias != nullptr &&
      (given.bias->rank != 1 || given.bias->sizes[0] != given.out.sizes[1] || given.bias->strides[0] != 1 ||
       given.bias->dtype != given.out.dtype || reinterpret_cast<uintptr_t>(given.bias->data) % kAlignment != 0)) {
    return false;
  }
  if (given.residual != nullptr && (given.residual->rank != kMostDims || given.residual->dtype != given.out.dtype ||
                                    !std::equal(given.out.sizes, given.out.sizes + kMostDims, given.residual->sizes) ||
                                    !has_channels_innermost(*given.residual) ||
                                    reinterpret_cast<uintptr_t>(given.residual->data) % kAlignment != 0)) {
    return false;
  }
  return std::all_of(numbers, numbers + kGroups + 1, [](int64_t number) { return number <= kMostElements; });
}

// A convolution of one or two dims has a first one of which nothing is seen.
bool is_flat(const Operands& given, const int64_t* numbers) {
  return given.x.sizes[2] == 1 && given.weight.sizes[2] == 1 && given.out.sizes[2] == 1 && numbers[kPads] == 0;
}

// Sizes or numbers as cuDNN takes them: without the one at `first`, that of the first dim, if there are two dims.
std::vector<int> to_ints(const int64_t* from, int count, int first, bool is_flat) {
  std::vector<int> kept;
  for (int i = 0; i < count; ++i) {
    if (!(is_flat && i == first)) kept.push_back(static_cast<int>(from[i]));
  }
  return kept;
}

}  // namespace

struct CudnnLibrary {
#define AOTPACK_MEMBER(symbol, parameters) int(*symbol) parameters = nullptr;
  AOTPACK_CUDNN_FUNCTIONS(AOTPACK_MEMBER)
#undef AOTPACK_MEMBER
  size_t (*cudnnGetVersion)() = nullptr;
  const char* (*cudnnGetErrorString)(int status) = nullptr;
  size_t version = 0;

  bool load() {
    // cuDNN opens cuBLASLt by its name, by which the dynamic linker does not find those of installed packages.
    (void)MatrixProducts::library();
    void* handle = open_library({"libcudnn.so.9", "libcudnn.so.8"});
    if (handle == nullptr) return false;
    bool is_whole = find_function(handle, "cudnnGetVersion", &cudnnGetVersion) &&
                    find_function(handle, "cudnnGetErrorString", &cudnnGetErrorString);
#define AOTPACK_FIND(symbol, parameters) is_whole = find_function(handle, #symbol, &this->symbol) && is_whole;
    AOTPACK_CUDNN_FUNCTIONS(AOTPACK_FIND)
#undef AOTPACK_FIND
    if (!is_whole) return false;
    version = cudnnGetVersion();
    // 8.9.2 is 8902, 9.1.0 is 90100.
    if (version < 10000) version = version / 1000 * 10000 + version % 1000;
    return version >= 80000 && version < 100000;
  }
};

const CudnnLibrary* Convolutions::library() {
  // Never destroyed: contexts may be released while the process ends.
  static CudnnLibrary& known = *new CudnnLibrary;
  static const bool is_usable = known.load();
  return is_usable ? &known : nullptr;
}

bool Convolutions::takes(int32_t dtype) noexcept {
  return dtype == AOTPACK_DTYPE_FLOAT16 || dtype == AOTPACK_DTYPE_BFLOAT16 || dtype == AOTPACK_DTYPE_FLOAT32;
}

struct Convolutions::Plan {
  explicit Plan(const CudnnLibrary& owner) : library(owner) {}
  ~Plan() {
    for (void* tensor : {x, y, bias}) {
      if (tensor != nullptr) library.cudnnDestroyTensorDescriptor(tensor);
    }
    if (filter != nullptr) library.cudnnDestroyFilterDescriptor(filter);
    if (convolution != nullptr) library.cudnnDestroyConvolutionDescriptor(convolution);
    if (activation != nullptr) library.cudnnDestroyActivationDescriptor(activation);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Dense, with channels innermost.
  bool describe(void** out, int type, const std::vector<int>& sizes) const {
    const int rank = static_cast<int>(sizes.size());
    int strides[kMostDims];
    int step = 1;
    for (int i = 0; i < rank; ++i) {
      const int axis = i == 0 ? 1 : i == rank - 1 ? 0 : rank - i;
      strides[axis] = step;
      step *= sizes[static_cast<size_t>(axis)];
    }
    return library.cudnnCreateTensorDescriptor(out) == 0 &&
           library.cudnnSetTensorNdDescriptor(*out, type, rank, sizes.data(), strides) == 0;
  }

  const CudnnLibrary& library;
  void *x = nullptr, *y = nullptr, *bias = nullptr;
  void *filter = nullptr, *convolution = nullptr, *activation = nullptr;
  bool is_fused = false;  // with bias, residual and activation
  int algorithm = 0;
  size_t work_bytes = 0;
};

Convolutions::Convolutions(const CudnnLibrary& library) : library_(library) {
  if (library_.cudnnCreate(&handle_) != 0) handle_ = nullptr;
}

Convolutions::~Convolutions() {
  if (handle_ != nullptr) library_.cudnnDestroy(handle_);
}

void Convolutions::check(int status, const char* function) const {
  if (status == 0) return;
  fail(AOTPACK_DEVICE_FAILED, "cuDNN %zu.%zu: %s fails with %s (%d)", library_.version / 10000,
       library_.version % 10000 / 100, function, library_.cudnnGetErrorString(status), status);
}

std::unique_ptr<Convolutions::Plan> Convolutions::make_plan(const Key& key,
                                                            const aotpack_module_library_call& call) const {
  const Operands given(call);
  const int64_t* numbers = call.numbers;
  const bool flat = is_flat(given, numbers);
  const int type = type_of(static_cast<int32_t>(key[0]));
  const bool is_transposed = numbers[kTransposed] != 0;
  auto plan = std::make_unique<Plan>(library_);
  const auto tensor = [&](const aotpack_module_tensor& of) { return to_ints(of.sizes, kMostDims, 2, flat); };
  const auto dims = [&](int first) { return to_ints(numbers + first, 3, 0, flat); };
  const std::vector<int> kernel = tensor(given.weight), pads = dims(kPads), steps = dims(kSteps);
  const std::vector<int> dilations = dims(kDilations);
  const int rank = static_cast<int>(kernel.size());
  std::vector<int> one_place(kernel.size(), 1);
  one_place[1] = static_cast<int>(given.out.sizes[1]);
  const int math = type != kFloat32 ? kTensorCores : numbers[kTf32] != 0 ? kDefaultMath : kWithoutTensorCores;
  if (!plan->describe(&plan->x, type, tensor(given.x)) || !plan->describe(&plan->y, type, tensor(given.out)) ||
      !plan->describe(&plan->bias, type, one_place) || library_.cudnnCreateFilterDescriptor(&plan->filter) != 0 ||
      library_.cudnnSetFilterNdDescriptor(plan->filter, type, kChannelsLast, rank, kernel.data()) != 0 ||
      library_.cudnnCreateConvolutionDescriptor(&plan->convolution) != 0 ||
      library_.cudnnSetConvolutionNdDescriptor(plan->convolution, rank - 2, pads.data(), steps.data(), dilations.data(),
                                               kCrossCorrelation, kFloat32) != 0 ||
      library_.cudnnSetConvolutionGroupCount(plan->convolution, static_cast<int>(numbers[kGroups])) != 0 ||
      library_.cudnnSetConvolutionMathType(plan->convolution, math) != 0 ||
      library_.cudnnCreateActivationDescriptor(&plan->activation) != 0 ||
      library_.cudnnSetActivationDescriptor(plan->activation, numbers[kActivation] == 1 ? kRelu : kIdentity, kKeepsNan,
                                            0) != 0) {
    return nullptr;
  }
  plan->is_fused = numbers[kHasBias] != 0 || numbers[kHasResidual] != 0 || numbers[kActivation] != 0;
  // It has neither.
  if (is_transposed && plan->is_fused) return nullptr;

  Algorithm found[kMostAlgorithms];
  int count = 0;
  const int status =
      is_transposed ? library_.cudnnGetConvolutionBackwardDataAlgorithm_v7(
                          handle_, plan->filter, plan->x, plan->convolution, plan->y, kMostAlgorithms, &count, found)
                    : library_.cudnnGetConvolutionForwardAlgorithm_v7(handle_, plan->x, plan->filter, plan->convolution,
                                                                      plan->y, kMostAlgorithms, &count, found);
  if (status != 0) return nullptr;
  for (int i = 0; i < count; ++i) {
    const int number = found[i].number;
    const bool is_wanted = is_transposed ? number == kOrderedGradient
                                         : number == kPrecomputedProduct || (number == kProduct && !plan->is_fused);
    if (found[i].status != 0 || !is_wanted) continue;
    // In halves, cuDNN may do without tensor cores; single precision stays what was asked for.
    if (type != kFloat32 && library_.cudnnSetConvolutionMathType(plan->convolution, found[i].math) != 0) continue;
    plan->algorithm = number;
    const int sized = is_transposed
                          ? library_.cudnnGetConvolutionBackwardDataWorkspaceSize(
                                handle_, plan->filter, plan->x, plan->convolution, plan->y, number, &plan->work_bytes)
                          : library_.cudnnGetConvolutionForwardWorkspaceSize(
                                handle_, plan->x, plan->filter, plan->convolution, plan->y, number, &plan->work_bytes);
    if (sized == 0 && plan->work_bytes <= kMostWorkspace) return plan;
  }
  return nullptr;
}

int Convolutions::execute(const Plan& plan, const aotpack_module_library_call& call, const void* weight,
                          LibraryWork& work) const {
  const Operands given(call);
  const float one = 1, zero = 0;
  void* workspace = plan.work_bytes == 0 ? nullptr : work.take(plan.work_bytes);
  if (call.numbers[kTransposed] != 0) {
    return library_.cudnnConvolutionBackwardData(handle_, &one, plan.filter, weight, plan.x, given.x.data,
                                                 plan.convolution, plan.algorithm, workspace, plan.work_bytes, &zero,
                                                 plan.y, given.out.data);
  }
  if (!plan.is_fused) {
    return library_.cudnnConvolutionForward(handle_, &one, plan.x, given.x.data, plan.filter, weight, plan.convolution,
                                            plan.algorithm, workspace, plan.work_bytes, &zero, plan.y, given.out.data);
  }
  const void* bias = given.bias == nullptr ? nullptr : given.bias->data;
  if (bias == nullptr) {
    const size_t bytes = static_cast<size_t>(given.out.sizes[1]) * library_item(given.out.dtype);
    void* zeros = work.take(bytes);
    work.stream().fill(zeros, 0, 1, bytes);
    bias = zeros;
  }
  const void* residual = given.residual == nullptr ? given.out.data : given.residual->data;
  return library_.cudnnConvolutionBiasActivationForward(handle_, &one, plan.x, given.x.data, plan.filter, weight,
                                                        plan.convolution, plan.algorithm, workspace, plan.work_bytes,
                                                        given.residual == nullptr ? &zero : &one, plan.y, residual,
                                                        plan.bias, bias, plan.activation, plan.y, given.out.data);
}

bool Convolutions::convolution(const aotpack_module_library_call& call, LibraryWork& work) {
  if (handle_ == nullptr || !is_valid(call)) return false;
  const Operands given(call);
  if (!has_channels_innermost(given.x) || !has_channels_innermost(given.out)) return false;
  Key key{given.out.dtype};
  auto next = key.begin() + 1;
  for (const aotpack_module_tensor* tensor : {&given.x, &given.weight, &given.out}) {
    next = std::copy_n(tensor->sizes, kMostDims, next);
  }
  std::copy_n(call.numbers, kNumbers, next);
  const Plan* plan = plans_.find(key, [&] { return make_plan(key, call); });
  if (plan == nullptr) return false;
  const void* weight = given.weight.data;
  if (!has_channels_innermost(given.weight)) {
    const aotpack_module_tensor arranged = work.make(given.weight, {std::begin(kInnermost), std::end(kInnermost)});
    work.copy(arranged, given.weight);
    weight = arranged.data;
  }
  check(library_.cudnnSetStream(handle_, work.stream().busy()), "cudnnSetStream");
  const int status = execute(*plan, call, weight, work);
  if (is_refusal(status)) {
    plans_.refuse(key);
    return false;
  }
  check(status, call.numbers[kTransposed] != 0 ? "cudnnConvolutionBackwardData"
                : plan->is_fused               ? "cudnnConvolutionBiasActivationForward"
                                               : "cudnnConvolutionForward");
  return true;
}

}  // namespace aotpack::runtime::cuda
