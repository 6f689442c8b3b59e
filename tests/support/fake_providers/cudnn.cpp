// cuDNN's convolutions, as their sums are defined: of dense tensors with channels innermost.
#include <array>
#include <cmath>
#include <mutex>
#include <vector>

#include "halves.h"
#include "queue.h"

using namespace fake_providers;

namespace {

constexpr int kFloat32 = 0, kFloat16 = 2, kBfloat16 = 9;
constexpr int kBadParam = 2000, kNotSupported = 3000, kExecutionFailed = 5000;
constexpr int kTensorCores = 1, kWithoutTensorCores = 3;
constexpr int kRelu = 1, kIdentity = 5;
constexpr size_t kWork = 224;

struct Tensor {
  int type = -1;
  std::vector<int> sizes, strides;
};
struct Filter {
  int type = -1;
  std::vector<int> sizes;
};
struct Convolution {
  std::vector<int> pads, steps, dilations;
  int groups = 1, math = 0;
};
struct Activation {
  int mode = -1, nan = 0;
};
struct Handle {
  void* stream = nullptr;
};
struct Algorithm {
  int number, status;
  float time;
  size_t work_bytes;
  int is_deterministic, math, reserved[3];
};

std::mutex mutex;  // of both below
uint64_t calls = 0, asked = 0;

template <typename Object>
int make(void** out) {
  *out = new Object;
  return 0;
}
template <typename Object>
int destroy(void* object) {
  delete static_cast<Object*>(object);
  return 0;
}
template <typename Object>
const Object& at(const void* object) {
  return *static_cast<const Object*>(object);
}

double load(int type, const void* memory, int64_t place) {
  if (type == kFloat32) return access<float>(static_cast<const float*>(memory) + place, 1)[0];
  const uint16_t bits = access<uint16_t>(static_cast<const uint16_t*>(memory) + place, 1)[0];
  return type == kFloat16 ? from_half(bits) : from_bfloat16(bits);
}
void store(int type, void* memory, int64_t place, double value) {
  const auto number = static_cast<float>(value);
  if (type == kFloat32) {
    access<float>(static_cast<float*>(memory) + place, 1)[0] = number;
  } else {
    access<uint16_t>(static_cast<uint16_t*>(memory) + place, 1)[0] =
        type == kFloat16 ? to_half(number) : to_bfloat16(number);
  }
}

// With three dims, as if there were a first one of size 1.
struct View {
  int type;
  std::array<int64_t, 5> sizes, strides;

  int64_t place(int64_t n, int64_t c, int64_t d, int64_t h, int64_t w) const {
    return n * strides[0] + c * strides[1] + d * strides[2] + h * strides[3] + w * strides[4];
  }
};
View dense(int type, const std::vector<int>& sizes) {
  View view{type, {sizes[0], sizes[1], 1, 1, 1}, {}};
  for (size_t i = 2; i < sizes.size(); ++i) view.sizes[i + 5 - sizes.size()] = sizes[i];
  int64_t step = 1;
  for (const size_t axis : {1, 4, 3, 2, 0}) {
    view.strides[axis] = step;
    step *= view.sizes[axis];
  }
  return view;
}
std::array<int64_t, 3> three(const std::vector<int>& values, int64_t first) {
  return values.size() == 3 ? std::array<int64_t, 3>{values[0], values[1], values[2]}
                            : std::array<int64_t, 3>{first, values[0], values[1]};
}
bool is_dense(const Tensor& tensor) {
  const View view = dense(tensor.type, tensor.sizes);
  for (size_t i = 0; i < tensor.sizes.size(); ++i) {
    const int64_t step = i < 2 ? view.strides[i] : view.strides[i + 5 - tensor.sizes.size()];
    if (tensor.sizes[i] != 1 && tensor.strides[i] != step) return false;
  }
  return true;
}

// Whether `images` [n, c, ...] become `places` [n, k, ...] by the filter [k, c / groups, ...].
bool fits(const Tensor& images, const Filter& filter, const Convolution& op, const Tensor& places) {
  const size_t rank = images.sizes.size();
  if ((rank != 4 && rank != 5) || filter.sizes.size() != rank || places.sizes.size() != rank ||
      op.pads.size() != rank - 2 || images.type != filter.type || images.type != places.type || !is_dense(images) ||
      !is_dense(places) || images.sizes[0] != places.sizes[0] || filter.sizes[0] != places.sizes[1] ||
      filter.sizes[1] * op.groups != images.sizes[1] || filter.sizes[0] % op.groups != 0) {
    return false;
  }
  for (size_t i = 0; i < rank - 2; ++i) {
    const int reach = op.dilations[i] * (filter.sizes[i + 2] - 1) + 1;
    if (places.sizes[i + 2] != (images.sizes[i + 2] + 2 * op.pads[i] - reach) / op.steps[i] + 1) return false;
  }
  return images.type != kFloat32 ? op.math == kTensorCores : op.math == 0 || op.math == kWithoutTensorCores;
}

// Calls body(image, filter, place) for the elements of each product.
template <typename Body>
void each_product(const View& images, const View& filter, const Convolution& op, const View& places, Body body) {
  const auto pads = three(op.pads, 0), steps = three(op.steps, 1), dilations = three(op.dilations, 1);
  const int64_t of_group = filter.sizes[0] / op.groups;
  for (int64_t n = 0; n < places.sizes[0]; ++n) {
    for (int64_t k = 0; k < places.sizes[1]; ++k) {
      for (int64_t d = 0; d < places.sizes[2]; ++d) {
        for (int64_t h = 0; h < places.sizes[3]; ++h) {
          for (int64_t w = 0; w < places.sizes[4]; ++w) {
            for (int64_t c = 0; c < filter.sizes[1]; ++c) {
              for (int64_t i = 0; i < filter.sizes[2]; ++i) {
                for (int64_t j = 0; j < filter.sizes[3]; ++j) {
                  for (int64_t l = 0; l < filter.sizes[4]; ++l) {
                    const int64_t z = d * steps[0] - pads[0] + i * dilations[0];
                    const int64_t y = h * steps[1] - pads[1] + j * dilations[1];
                    const int64_t x = w * steps[2] - pads[2] + l * dilations[2];
                    if (z < 0 || z >= images.sizes[2] || y < 0 || y >= images.sizes[3] || x < 0 ||
                        x >= images.sizes[4]) {
                      continue;
                    }
                    const int64_t channel = k / of_group * filter.sizes[1] + c;
                    body(images.place(n, channel, z, y, x), filter.place(k, c, i, j, l), places.place(n, k, d, h, w));
                  }
                }
              }
            }
          }
        }
      }
    }
  }
}

size_t count(const View& view) {
  size_t all = 1;
  for (const int64_t size : view.sizes) all *= static_cast<size_t>(size);
  return all;
}

// Of math 0, single precision is multiplied in TF32.
double number(const Convolution& op, int type, double value) {
  return type == kFloat32 && op.math == 0 ? to_tf32(static_cast<float>(value)) : value;
}

int find(void* handle, bool is_possible, const char* function, int math, int gradient, int wanted, int* count,
         Algorithm* out) {
  const std::lock_guard lock(mutex);
  ++asked;
  *count = 0;
  if (handle == nullptr || wanted < 2 || fails(function)) return kBadParam;
  if (!is_possible) return kNotSupported;
  // What the runtime does not want comes first: transforms, and additions in any order.
  out[0] = {gradient ? 0 : 6, 0, 1, kWork, 0, math, {}};
  out[1] = {1, 0, 2, kWork, 1, math, {}};
  *count = 2;
  return 0;
}

bool is_aligned(std::initializer_list<const void*> addresses) {
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  return true;
}

int convolve(const char* function, void* handle, const void* alpha, void* of_x, const void* x, void* of_w,
             const void* w, void* convolution, int algorithm, void* workspace, size_t work_bytes, void* of_y, void* y,
             std::function<double(double, int64_t, int64_t)> finish) {
  const std::lock_guard lock(mutex);
  if (fails(function)) return kExecutionFailed;
  const Convolution op = at<Convolution>(convolution);
  if (!fits(at<Tensor>(of_x), at<Filter>(of_w), op, at<Tensor>(of_y)) || algorithm != 1 || workspace == nullptr ||
      work_bytes != kWork || *static_cast<const float*>(alpha) != 1 || !is_aligned({x, w, y})) {
    return kBadParam;
  }
  if (fails("cudnnConvolution, not supported")) return kNotSupported + 4;
  ++calls;
  const View images = dense(at<Tensor>(of_x).type, at<Tensor>(of_x).sizes);
  const View filter = dense(at<Filter>(of_w).type, at<Filter>(of_w).sizes);
  const View places = dense(at<Tensor>(of_y).type, at<Tensor>(of_y).sizes);
  const auto run = [=] {
    std::vector<double> sums(count(places));
    each_product(images, filter, op, places, [&](int64_t image, int64_t tap, int64_t place) {
      sums[static_cast<size_t>(place)] +=
          number(op, images.type, load(images.type, x, image)) * number(op, images.type, load(images.type, w, tap));
    });
    for (size_t i = 0; i < sums.size(); ++i) {
      const auto place = static_cast<int64_t>(i);
      store(places.type, y, place, finish(sums[i], place, place % places.sizes[1]));
    }
    spoil(workspace, kWork);
  };
  return submit(static_cast<Handle*>(handle)->stream, run) ? 0 : kExecutionFailed;
}

}  // namespace

EXPORT uint64_t fake_cudnn_calls() {
  const std::lock_guard lock(mutex);
  return calls;
}
// How often the library was asked for algorithms.
EXPORT uint64_t fake_cudnn_asked() {
  const std::lock_guard lock(mutex);
  return asked;
}

EXPORT size_t cudnnGetVersion() {
  const char* text = std::getenv("FAKE_PROVIDER_VERSION");
  return text != nullptr ? static_cast<size_t>(std::atoi(text)) : 90500;
}
EXPORT const char* cudnnGetErrorString(int status) {
  return status == kExecutionFailed ? "CUDNN_STATUS_EXECUTION_FAILED" : "CUDNN_STATUS_OTHER";
}

EXPORT int cudnnCreate(void** out) { return make<Handle>(out); }
EXPORT int cudnnDestroy(void* handle) { return destroy<Handle>(handle); }
EXPORT int cudnnSetStream(void* handle, void* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return 0;
}
EXPORT int cudnnCreateTensorDescriptor(void** out) { return make<Tensor>(out); }
EXPORT int cudnnDestroyTensorDescriptor(void* tensor) { return destroy<Tensor>(tensor); }
EXPORT int cudnnSetTensorNdDescriptor(void* tensor, int type, int rank, const int* sizes, const int* strides) {
  *static_cast<Tensor*>(tensor) = {type, {sizes, sizes + rank}, {strides, strides + rank}};
  return 0;
}
EXPORT int cudnnCreateFilterDescriptor(void** out) { return make<Filter>(out); }
EXPORT int cudnnDestroyFilterDescriptor(void* filter) { return destroy<Filter>(filter); }
EXPORT int cudnnSetFilterNdDescriptor(void* filter, int type, int format, int rank, const int* sizes) {
  *static_cast<Filter*>(filter) = {type, {sizes, sizes + rank}};
  return format == 1 ? 0 : kNotSupported;
}
EXPORT int cudnnCreateConvolutionDescriptor(void** out) { return make<Convolution>(out); }
EXPORT int cudnnDestroyConvolutionDescriptor(void* convolution) { return destroy<Convolution>(convolution); }
EXPORT int cudnnSetConvolutionNdDescriptor(void* convolution, int dims, const int* pads, const int* steps,
                                           const int* dilations, int mode, int sum_type) {
  *static_cast<Convolution*>(convolution) = {{pads, pads + dims}, {steps, steps + dims}, {dilations, dilations + dims}};
  return mode == 1 && sum_type == kFloat32 ? 0 : kBadParam;
}
EXPORT int cudnnSetConvolutionGroupCount(void* convolution, int groups) {
  static_cast<Convolution*>(convolution)->groups = groups;
  return 0;
}
EXPORT int cudnnSetConvolutionMathType(void* convolution, int math) {
  static_cast<Convolution*>(convolution)->math = math;
  return 0;
}
EXPORT int cudnnCreateActivationDescriptor(void** out) { return make<Activation>(out); }
EXPORT int cudnnDestroyActivationDescriptor(void* activation) { return destroy<Activation>(activation); }
EXPORT int cudnnSetActivationDescriptor(void* activation, int mode, int nan, double) {
  *static_cast<Activation*>(activation) = {mode, nan};
  return nan == 1 ? 0 : kBadParam;
}

EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(void* handle, void* x, void* w, void* convolution, void* y,
                                                  int wanted, int* count, Algorithm* out) {
  const auto& op = at<Convolution>(convolution);
  return find(handle, fits(at<Tensor>(x), at<Filter>(w), op, at<Tensor>(y)), "cudnnGetConvolutionForwardAlgorithm_v7",
              op.math, 0, wanted, count, out);
}
EXPORT int cudnnGetConvolutionForwardWorkspaceSize(void*, void*, void*, void*, void*, int algorithm, size_t* out) {
  *out = kWork;
  return algorithm == 1 ? 0 : kNotSupported;
}
EXPORT int cudnnConvolutionForward(void* handle, const void* alpha, void* of_x, const void* x, void* of_w,
                                   const void* w, void* convolution, int algorithm, void* workspace, size_t work_bytes,
                                   const void* beta, void* of_y, void* y) {
  if (*static_cast<const float*>(beta) != 0) return kBadParam;
  return convolve("cudnnConvolutionForward", handle, alpha, of_x, x, of_w, w, convolution, algorithm, workspace,
                  work_bytes, of_y, y, [](double sum, int64_t, int64_t) { return sum; });
}
EXPORT int cudnnConvolutionBiasActivationForward(void* handle, const void* alpha, void* of_x, const void* x, void* of_w,
                                                 const void* w, void* convolution, int algorithm, void* workspace,
                                                 size_t work_bytes, const void* beta, void* of_z, const void* z,
                                                 void* of_bias, const void* bias, void* activation, void* of_y,
                                                 void* y) {
  const Activation last = at<Activation>(activation);
  const Tensor biases = at<Tensor>(of_bias);
  const float factor = *static_cast<const float*>(beta);
  const int type = at<Tensor>(of_y).type;
  if (of_z != of_y || biases.sizes[1] != at<Tensor>(of_y).sizes[1] || biases.type != type ||
      (last.mode != kRelu && last.mode != kIdentity) || !is_aligned({z, bias})) {
    return kBadParam;
  }
  return convolve("cudnnConvolutionBiasActivationForward", handle, alpha, of_x, x, of_w, w, convolution, algorithm,
                  workspace, work_bytes, of_y, y, [=](double sum, int64_t place, int64_t channel) {
                    sum += load(type, bias, channel);
                    if (factor != 0) sum += factor * load(type, z, place);
                    return last.mode == kRelu && sum < 0 ? 0 : sum;
                  });
}

EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(void* handle, void* w, void* dy, void* convolution, void* dx,
                                                       int wanted, int* count, Algorithm* out) {
  const auto& op = at<Convolution>(convolution);
  return find(handle, fits(at<Tensor>(dx), at<Filter>(w), op, at<Tensor>(dy)),
              "cudnnGetConvolutionBackwardDataAlgorithm_v7", op.math, 1, wanted, count, out);
}
EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(void*, void*, void*, void*, void*, int algorithm, size_t* out) {
  *out = kWork;
  return algorithm == 1 ? 0 : kNotSupported;
}
EXPORT int cudnnConvolutionBackwardData(void* handle, const void* alpha, void* of_w, const void* w, void* of_dy,
                                        const void* dy, void* convolution, int algorithm, void* workspace,
                                        size_t work_bytes, const void* beta, void* of_dx, void* dx) {
  const std::lock_guard lock(mutex);
  if (fails("cudnnConvolutionBackwardData")) return kExecutionFailed;
  const Convolution op = at<Convolution>(convolution);
  if (!fits(at<Tensor>(of_dx), at<Filter>(of_w), op, at<Tensor>(of_dy)) || algorithm != 1 || workspace == nullptr ||
      work_bytes != kWork || *static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0 ||
      !is_aligned({dx, w, dy})) {
    return kBadParam;
  }
  ++calls;
  const View images = dense(at<Tensor>(of_dx).type, at<Tensor>(of_dx).sizes);
  const View filter = dense(at<Filter>(of_w).type, at<Filter>(of_w).sizes);
  const View places = dense(at<Tensor>(of_dy).type, at<Tensor>(of_dy).sizes);
  const auto run = [=] {
    std::vector<double> sums(count(images));
    each_product(images, filter, op, places, [&](int64_t image, int64_t tap, int64_t place) {
      sums[static_cast<size_t>(image)] +=
          number(op, images.type, load(places.type, dy, place)) * number(op, images.type, load(filter.type, w, tap));
    });
    for (size_t i = 0; i < sums.size(); ++i) store(images.type, dx, static_cast<int64_t>(i), sums[i]);
    spoil(workspace, kWork);
  };
  return submit(static_cast<Handle*>(handle)->stream, run) ? 0 : kExecutionFailed;
}
