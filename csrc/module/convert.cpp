// clone, copy_ and view_dtype of the C shim: copies with broadcasting and conversion of dtype, and the same bytes as
// elements of another dtype.
#include "ops/dtype.h"
#include "shim.h"

namespace aotpack::module {
namespace {

// One element as the widest type of its kind.
struct Value {
  double real;
  int64_t integer;
  bool floating;
};

Value load(const char* p, int32_t dtype) {
  auto integer = [](int64_t v) { return Value{static_cast<double>(v), v, false}; };
  auto real = [](double v) { return Value{v, 0, true}; };
  switch (dtype) {
    case AOTPACK_DTYPE_UINT8:
      return integer(*reinterpret_cast<const uint8_t*>(p));
    case AOTPACK_DTYPE_BOOL:
      return integer(*reinterpret_cast<const uint8_t*>(p) != 0);
    case AOTPACK_DTYPE_INT8:
      return integer(*reinterpret_cast<const int8_t*>(p));
    case AOTPACK_DTYPE_INT16:
      return integer(*reinterpret_cast<const int16_t*>(p));
    case AOTPACK_DTYPE_INT32:
      return integer(*reinterpret_cast<const int32_t*>(p));
    case AOTPACK_DTYPE_INT64:
      return integer(*reinterpret_cast<const int64_t*>(p));
    case AOTPACK_DTYPE_UINT16:
      return integer(*reinterpret_cast<const uint16_t*>(p));
    case AOTPACK_DTYPE_UINT32:
      return integer(*reinterpret_cast<const uint32_t*>(p));
    case AOTPACK_DTYPE_FLOAT32:
      return real(*reinterpret_cast<const float*>(p));
    case AOTPACK_DTYPE_FLOAT64:
      return real(*reinterpret_cast<const double*>(p));
    case AOTPACK_DTYPE_FLOAT16:
      return real(*reinterpret_cast<const Float16*>(p));
    case AOTPACK_DTYPE_BFLOAT16:
      return real(*reinterpret_cast<const BFloat16*>(p));
    default:
      throw_invalid(std::string("copy_ from ") + dtype_name(dtype));
  }
}

void store(char* p, int32_t dtype, const Value& v) {
  const int64_t i = v.floating ? static_cast<int64_t>(v.real) : v.integer;
  switch (dtype) {
    case AOTPACK_DTYPE_BOOL:
      *reinterpret_cast<uint8_t*>(p) = v.floating ? v.real != 0 : v.integer != 0;
      return;
    case AOTPACK_DTYPE_UINT8:
      *reinterpret_cast<uint8_t*>(p) = static_cast<uint8_t>(i);
      return;
    case AOTPACK_DTYPE_INT8:
      *reinterpret_cast<int8_t*>(p) = static_cast<int8_t>(i);
      return;
    case AOTPACK_DTYPE_INT16:
      *reinterpret_cast<int16_t*>(p) = static_cast<int16_t>(i);
      return;
    case AOTPACK_DTYPE_INT32:
      *reinterpret_cast<int32_t*>(p) = static_cast<int32_t>(i);
      return;
    case AOTPACK_DTYPE_INT64:
      *reinterpret_cast<int64_t*>(p) = i;
      return;
    case AOTPACK_DTYPE_UINT16:
      *reinterpret_cast<uint16_t*>(p) = static_cast<uint16_t>(i);
      return;
    case AOTPACK_DTYPE_UINT32:
      *reinterpret_cast<uint32_t*>(p) = static_cast<uint32_t>(i);
      return;
    case AOTPACK_DTYPE_FLOAT32:
      *reinterpret_cast<float*>(p) = v.floating ? static_cast<float>(v.real) : static_cast<float>(v.integer);
      return;
    case AOTPACK_DTYPE_FLOAT64:
      *reinterpret_cast<double*>(p) = v.real;
      return;
    case AOTPACK_DTYPE_FLOAT16:
      *reinterpret_cast<Float16*>(p) = Float16(static_cast<float>(v.real));
      return;
    case AOTPACK_DTYPE_BFLOAT16:
      *reinterpret_cast<BFloat16*>(p) = BFloat16(static_cast<float>(v.real));
      return;
    default:
      throw_invalid(std::string("copy_ to ") + dtype_name(dtype));
  }
}

void convert_copy(const Tensor* to, const Tensor* from) {
  const int64_t to_size = element_size(to->dtype), from_size = element_size(from->dtype);
  int64_t index[AOTPACK_MAX_RANK] = {};
  char* t = to->data;
  const char* f = from->data;
  for (int64_t n = to->numel(); n > 0; --n) {
    store(t, to->dtype, load(f, from->dtype));
    for (int32_t d = to->rank - 1; d >= 0; --d) {
      t += to->strides[d] * to_size;
      f += from->strides[d] * from_size;
      if (++index[d] < to->sizes[d]) break;
      t -= index[d] * to->strides[d] * to_size;
      f -= index[d] * from->strides[d] * from_size;
      index[d] = 0;
    }
  }
}

}  // namespace
}  // namespace aotpack::module

using aotpack::module::Call;
using aotpack::module::Tensor;

void aoti_torch_copy_(AtenTensorHandle destination, AtenTensorHandle source, int32_t) {
  Tensor expanded = *source;
  const int32_t lead = destination->rank - source->rank;
  if (lead < 0) aotpack::module::throw_invalid("copy_ from a tensor of a higher rank");
  expanded.rank = destination->rank;
  for (int32_t d = 0; d < destination->rank; ++d) {
    const int64_t size = d < lead ? 1 : source->sizes[d - lead];
    if (size != destination->sizes[d] && size != 1)
      aotpack::module::throw_invalid("copy_ between sizes that do not broadcast");
    expanded.sizes[d] = destination->sizes[d];
    expanded.strides[d] = size == 1 ? 0 : source->strides[d - lead];
  }
  if (source->dtype == destination->dtype) {
    aotpack::module::copy_strided(destination, &expanded);
  } else {
    aotpack::module::convert_copy(destination, &expanded);
  }
}

void aoti_torch_clone_preserve_strides(AtenTensorHandle tensor, AtenTensorHandle* out) {
  *out = Call::current().empty(tensor->rank, tensor->sizes, tensor->strides, tensor->dtype);
  aotpack::module::copy_strided(*out, tensor);
}

void aoti_torch_clone(AtenTensorHandle tensor, AtenTensorHandle* out) {
  aoti_torch_clone_preserve_strides(tensor, out);
}

void aoti_torch_assign_tensors_out(AtenTensorHandle source, AtenTensorHandle* out) {
  *out = Call::current().retain(source);
}

void aoti_torch_cpu_view_dtype(AtenTensorHandle tensor, int32_t dtype, AtenTensorHandle* out) {
  using aotpack::module::element_size;
  // Compiled code relies on bools of 0 and 1.
  if (dtype == AOTPACK_DTYPE_BOOL && tensor->dtype != dtype) {
    aotpack::module::throw_invalid("a view of other elements as bool is not supported");
  }
  Tensor* view = Call::current().view(tensor, tensor->rank, tensor->sizes, tensor->strides,
                                      (tensor->data - tensor->storage->base) / element_size(tensor->dtype));
  const int64_t from = element_size(tensor->dtype), to = element_size(dtype);
  view->dtype = dtype;
  if (from != to) {
    const int32_t last = view->rank - 1;
    const int64_t bytes = last < 0 ? 0 : view->sizes[last] * from;
    // As torch does: the last dim is dense, and what it holds, and each step of the others, is a whole number of
    // elements.
    bool fits = last >= 0 && (view->strides[last] == 1 || view->sizes[last] == 1) && bytes % to == 0;
    for (int32_t d = 0; d < last; ++d) {
      fits = fits && view->strides[d] * from % to == 0;
      view->strides[d] = view->strides[d] * from / to;
    }
    if (!fits) aotpack::module::throw_invalid("view: the elements do not fit those of the other dtype");
    view->sizes[last] = bytes / to;
    view->strides[last] = 1;
  }
  *out = view;
}
