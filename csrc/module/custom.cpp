#include "custom.h"

#include <algorithm>

namespace aotpack::module {

namespace {

template <typename Sizes>
std::string listed(const Sizes& sizes) {
  std::string text = "[";
  for (int64_t size : sizes) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

void make_bools(uint8_t* data, const int64_t* sizes, const int64_t* strides, int32_t rank) noexcept {
  if (rank == 0) {
    *data = *data != 0;
    return;
  }
  for (int64_t i = 0; i < sizes[0]; ++i) {
    uint8_t* const at = data + i * strides[0];
    if (rank == 1) {
      *at = *at != 0;
    } else {
      make_bools(at, sizes + 1, strides + 1, rank - 1);
    }
  }
}

}  // namespace

void make_bools(const Tensor* tensor) noexcept {
  if (tensor->dtype != AOTPACK_DTYPE_BOOL) return;
  make_bools(tensor->as<uint8_t>(), tensor->sizes, tensor->strides, tensor->rank);
}

void throw_custom(const char* name, int32_t code, const char* what) {
  throw Error(code, std::string(name) + ": " + what);
}

CustomCall::~CustomCall() {
  for (Tensor* tensor : made_) module::Call::current().drop(tensor);
  for (void* block : scratch_) module::Call::current().release(block);
}

// The runtime's memory belongs to the thread that runs the call.
void CustomCall::outside_of_parallel(const char* what) const {
  if (parallel_) throw op::Error(std::string(what) + " was called inside parallel_for");
}

op::Tensor CustomCall::keep(Tensor* tensor) {
  Owned owned(tensor);
  made_.push_back(tensor);
  return custom_view(owned.release(), true);
}

op::Tensor CustomCall::make(const int64_t* sizes, const int64_t* strides, size_t rank, op::DType dtype) {
  outside_of_parallel("empty");
  if (rank > AOTPACK_MAX_RANK) throw op::Error("a tensor of rank " + std::to_string(rank) + " is not supported");
  const auto dims = static_cast<int32_t>(rank);
  if (strides == nullptr)
    return keep(module::Call::current().empty_contiguous(dims, sizes, static_cast<int32_t>(dtype)));
  if (std::any_of(strides, strides + rank, [](int64_t stride) { return stride < 0; })) {
    throw op::Error("strides must not be negative");
  }
  return keep(module::Call::current().empty(dims, sizes, strides, static_cast<int32_t>(dtype)));
}

op::Tensor CustomCall::contiguous(const op::Tensor& source) {
  if (source.is_contiguous()) return source;
  outside_of_parallel("contiguous");
  Owned copy(module::contiguous(static_cast<const Tensor*>(source.handle())));
  made_.push_back(copy.get());
  // To be read, as the source is: whether it is a copy depends on the call.
  return custom_view(copy.release(), false);
}

void* CustomCall::allocate(int64_t bytes) {
  outside_of_parallel("scratch");
  scratch_.reserve(scratch_.size() + 1);
  scratch_.push_back(module::Call::current().allocate(bytes));
  return scratch_.back();
}

int CustomCall::num_threads() const { return module::Call::current().num_threads(); }

uint64_t CustomCall::seed() {
  outside_of_parallel("seed");
  return module::Call::current().seed();
}

void CustomCall::run_parts(int64_t parts, void (*body)(void* context, int64_t part) noexcept, void* context) {
  outside_of_parallel("parallel_for");
  parallel_ = true;
#pragma omp parallel for num_threads(static_cast<int>(parts)) schedule(static, 1)
  for (int64_t part = 0; part < parts; ++part) body(context, part);
  parallel_ = false;
}

void CustomCall::finish(const std::vector<op::Tensor>& results, Tensor** const* out, size_t count) {
  if (results.size() != count) {
    throw_custom(name_, AOTPACK_MODULE_FAILED,
                 ("the kernel returned " + std::to_string(results.size()) + " tensors, its fake implementation " +
                  std::to_string(count))
                     .c_str());
  }
  for (size_t i = 0; i < count; ++i) {
    auto* tensor = static_cast<Tensor*>(results[i].handle());
    const auto found = std::find(made_.begin(), made_.end(), tensor);
    if (found == made_.end()) {
      for (size_t j = 0; j < i; ++j) module::Call::current().drop(*out[j]);
      throw_custom(name_, AOTPACK_MODULE_FAILED,
                   "a result is an argument, or another result; results are made by call.empty, one for each");
    }
    make_bools(tensor);
    made_.erase(found);
    *out[i] = tensor;
  }
}

void custom_conform(torch::aot_inductor::RAIIAtenTensorHandle& result, int32_t dtype,
                    std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides, const char* name) {
  const Tensor* tensor = result.get();
  const std::span<const int64_t> actual(tensor->sizes, static_cast<size_t>(tensor->rank));
  if (tensor->dtype != dtype) {
    throw_custom(name, AOTPACK_MODULE_FAILED,
                 (std::string("the kernel returned ") + dtype_name(tensor->dtype) + ", its fake implementation " +
                  dtype_name(dtype))
                     .c_str());
  }
  if (!std::equal(actual.begin(), actual.end(), sizes.begin(), sizes.end())) {
    throw_custom(
        name, AOTPACK_MODULE_FAILED,
        ("the kernel returned the sizes " + listed(actual) + ", its fake implementation " + listed(sizes)).c_str());
  }
  // Strides of dims of size 1 mean nothing, and those of no elements neither.
  bool same = tensor->numel() == 0;
  if (!same) {
    same = true;
    for (int32_t d = 0; d < tensor->rank; ++d) {
      same = same && (tensor->sizes[d] == 1 || tensor->strides[d] == strides.begin()[d]);
    }
  }
  if (same) return;
  Owned copy(module::Call::current().empty(tensor->rank, sizes.begin(), strides.begin(), dtype));
  copy_strided(copy.get(), tensor);
  result = torch::aot_inductor::RAIIAtenTensorHandle(copy.release());
}

}  // namespace aotpack::module
