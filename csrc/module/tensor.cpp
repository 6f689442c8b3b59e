#include "tensor.h"

#include <algorithm>
#include <cstdlib>

#include "imports.h"

namespace aotpack::module {

namespace {

thread_local Call* current_call = nullptr;

// The extent in bytes of a view with non-negative strides; throws when it does not fit an address.
int64_t view_bytes(int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype) {
  int64_t last = 0;
  for (int32_t i = 0; i < rank; ++i) {
    if (sizes[i] < 0) throw_invalid("a tensor would have the negative size " + std::to_string(sizes[i]));
    if (sizes[i] == 0) return 0;
    int64_t span = 0;
    if (__builtin_mul_overflow(sizes[i] - 1, strides[i], &span) || __builtin_add_overflow(last, span, &last))
      throw Error(AOTPACK_MODULE_OUT_OF_MEMORY, "a tensor's size overflows");
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(last + 1, element_size(dtype), &bytes))
    throw Error(AOTPACK_MODULE_OUT_OF_MEMORY, "a tensor's size overflows");
  return bytes;
}

}  // namespace

void throw_invalid(const std::string& message) { throw Error(AOTPACK_MODULE_INVALID_ARGUMENT, message); }

int64_t element_size(int32_t dtype) {
  switch (dtype) {
    case AOTPACK_DTYPE_UINT8:
    case AOTPACK_DTYPE_INT8:
    case AOTPACK_DTYPE_BOOL:
    case AOTPACK_DTYPE_FLOAT8_E4M3FN:
    case AOTPACK_DTYPE_FLOAT8_E4M3FNUZ:
    case AOTPACK_DTYPE_FLOAT8_E5M2:
    case AOTPACK_DTYPE_FLOAT8_E5M2FNUZ:
      return 1;
    case AOTPACK_DTYPE_INT16:
    case AOTPACK_DTYPE_FLOAT16:
    case AOTPACK_DTYPE_BFLOAT16:
    case AOTPACK_DTYPE_UINT16:
      return 2;
    case AOTPACK_DTYPE_INT32:
    case AOTPACK_DTYPE_FLOAT32:
    case AOTPACK_DTYPE_UINT32:
      return 4;
    case AOTPACK_DTYPE_INT64:
    case AOTPACK_DTYPE_FLOAT64:
    case AOTPACK_DTYPE_COMPLEX64:
    case AOTPACK_DTYPE_UINT64:
      return 8;
    case AOTPACK_DTYPE_COMPLEX128:
      return 16;
    default:
      throw_invalid("unknown dtype " + std::to_string(dtype));
  }
}

const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case AOTPACK_DTYPE_UINT8:
      return "uint8";
    case AOTPACK_DTYPE_INT8:
      return "int8";
    case AOTPACK_DTYPE_INT16:
      return "int16";
    case AOTPACK_DTYPE_INT32:
      return "int32";
    case AOTPACK_DTYPE_INT64:
      return "int64";
    case AOTPACK_DTYPE_FLOAT16:
      return "float16";
    case AOTPACK_DTYPE_FLOAT32:
      return "float32";
    case AOTPACK_DTYPE_FLOAT64:
      return "float64";
    case AOTPACK_DTYPE_COMPLEX64:
      return "complex64";
    case AOTPACK_DTYPE_COMPLEX128:
      return "complex128";
    case AOTPACK_DTYPE_BOOL:
      return "bool";
    case AOTPACK_DTYPE_BFLOAT16:
      return "bfloat16";
    case AOTPACK_DTYPE_UINT16:
      return "uint16";
    case AOTPACK_DTYPE_UINT32:
      return "uint32";
    case AOTPACK_DTYPE_UINT64:
      return "uint64";
    case AOTPACK_DTYPE_FLOAT8_E4M3FN:
      return "float8_e4m3fn";
    case AOTPACK_DTYPE_FLOAT8_E4M3FNUZ:
      return "float8_e4m3fnuz";
    case AOTPACK_DTYPE_FLOAT8_E5M2:
      return "float8_e5m2";
    case AOTPACK_DTYPE_FLOAT8_E5M2FNUZ:
      return "float8_e5m2fnuz";
    default:
      return "unknown";
  }
}

void contiguous_strides(int32_t rank, const int64_t* sizes, int64_t* strides) {
  int64_t stride = 1;
  for (int32_t i = rank - 1; i >= 0; --i) {
    strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int32_t i = rank - 1; i >= 0; --i) {
    if (sizes[i] == 0) return true;
    if (sizes[i] != 1 && strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

struct Call::Slab {
  Slab* next;
  Tensor tensors[kInline];
  Storage storages[kInline];
};

Call::Call(const aotpack_module_call* call) : call_(call), outer_(current_call) { current_call = this; }

Call::~Call() {
  // After a failure tensors may still hold blocks: they go back to the runtime here.
  auto sweep = [this](Storage* storages, int count) {
    for (int i = 0; i < count; ++i) {
      if (storages[i].references > 0 && storages[i].block != nullptr) release(storages[i]);
    }
  };
  sweep(storages_, slabs_ == nullptr ? used_ : kInline);
  int count = used_;
  while (slabs_ != nullptr) {
    Slab* next = slabs_->next;
    sweep(slabs_->storages, count);
    count = kInline;
    std::free(slabs_);
    slabs_ = next;
  }
  if (arena_ != nullptr) release(arena_);
  current_call = outer_;
}

Call& Call::current() { return *current_call; }

void* Call::allocate(int64_t bytes) {
  void* block = reinterpret_cast<aotpack_import_alloc_fn>(call_->imports[import_alloc])(call_->runtime, bytes);
  if (block == nullptr)
    throw Error(AOTPACK_MODULE_OUT_OF_MEMORY, "out of memory allocating " + std::to_string(bytes) + " bytes");
  return block;
}

void Call::release(void* block) {
  reinterpret_cast<aotpack_import_free_fn>(call_->imports[import_free])(call_->runtime, block);
}

void Call::release(const Storage& storage) {
  if (storage.on_host) {
    std::free(storage.block);
  } else {
    release(storage.block);
  }
}

uint64_t Call::seed() { return reinterpret_cast<aotpack_import_seed_fn>(call_->imports[import_seed])(call_->runtime); }

void Call::fail(const Error& error) {
  reinterpret_cast<aotpack_import_fail_fn>(call_->imports[import_fail])(call_->runtime, error.code(),
                                                                        error.message().data(), error.message().size());
}

// Tensors and storages are made in pairs, so one counter serves both slabs: a view leaves its storage slot unused.
Tensor* Call::new_tensor() {
  if (free_tensors_ != nullptr) {
    Tensor* tensor = free_tensors_;
    free_tensors_ = tensor->next_free;
    return tensor;
  }
  if (used_ == kInline) {
    auto* slab = static_cast<Slab*>(std::malloc(sizeof(Slab)));
    if (slab == nullptr) throw Error(AOTPACK_MODULE_OUT_OF_MEMORY, "out of memory for tensor descriptors");
    slab->next = slabs_;
    slabs_ = slab;
    used_ = 0;
  }
  Storage* storage = slabs_ == nullptr ? &storages_[used_] : &slabs_->storages[used_];
  Tensor* tensor = slabs_ == nullptr ? &tensors_[used_] : &slabs_->tensors[used_];
  ++used_;
  storage->references = 0;
  storage->next_free = free_storages_;
  free_storages_ = storage;
  return tensor;
}

Storage* Call::new_storage() {
  // new_tensor always runs first and there are never more live storages than tensors made, so one is free.
  Storage* storage = free_storages_;
  free_storages_ = storage->next_free;
  storage->references = 1;
  return storage;
}

static void set_shape(Tensor* tensor, int32_t rank, const int64_t* sizes, const int64_t* strides) {
  tensor->rank = rank;
  for (int32_t i = 0; i < rank; ++i) {
    tensor->sizes[i] = sizes[i];
    tensor->strides[i] = strides[i];
  }
}

Tensor* Call::empty(int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype, const Tensor* last) {
  if (rank > AOTPACK_MAX_RANK) throw_invalid("a tensor of rank " + std::to_string(rank) + " is not supported");
  const int64_t bytes = view_bytes(rank, sizes, strides, dtype);
  if (Tensor* placed = empty_in_arena(bytes, rank, sizes, strides, dtype, last)) return placed;
  return over(allocate(bytes), bytes, rank, sizes, strides, dtype);
}

void Call::place(int64_t offset, int64_t bytes, int64_t arena_bytes) {
  arena_bytes_ = arena_bytes;
  places_[next_place_++ % kPlaces] = {offset, bytes};
}

// Null where no place is free.
Tensor* Call::empty_in_arena(int64_t bytes, int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                             const Tensor* last) {
  Place* const end = places_ + kPlaces;
  Place* const place = std::find_if(places_, end, [&](const Place& each) { return each.bytes == bytes; });
  if (place == end) return nullptr;
  place->bytes = -1;
  if (arena_ == nullptr) arena_ = static_cast<char*>(allocate(arena_bytes_));
  char* const begin = arena_ + place->offset;
  const Storage* const shared = last == nullptr || last->data != begin ? nullptr : last->storage;
  for (const Storage* other = placed_; other != nullptr; other = other->next_placed) {
    if (other == shared && other->base == begin && other->nbytes == bytes) continue;
    if (begin < other->base + other->nbytes && other->base < begin + bytes) return nullptr;
  }
  Tensor* tensor = over(begin, bytes, rank, sizes, strides, dtype);
  tensor->storage->block = nullptr;
  tensor->storage->is_placed = true;
  tensor->storage->next_placed = placed_;
  placed_ = tensor->storage;
  return tensor;
}

void Call::forget_place(Storage* storage) {
  Storage** link = &placed_;
  while (*link != storage) link = &(*link)->next_placed;
  *link = storage->next_placed;
  storage->is_placed = false;
}

Tensor* Call::empty_on_host(int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype) {
  if (rank > AOTPACK_MAX_RANK) throw_invalid("a tensor of rank " + std::to_string(rank) + " is not supported");
  const int64_t bytes = view_bytes(rank, sizes, strides, dtype);
  void* block = std::malloc(static_cast<size_t>(bytes > 0 ? bytes : 1));
  if (block == nullptr) throw Error(AOTPACK_MODULE_OUT_OF_MEMORY, "out of memory for a number of the host");
  Tensor* tensor = over(block, bytes, rank, sizes, strides, dtype);
  tensor->storage->on_host = true;
  return tensor;
}

Tensor* Call::over(void* block, int64_t bytes, int32_t rank, const int64_t* sizes, const int64_t* strides,
                   int32_t dtype) {
  Tensor* tensor = new_tensor();
  Storage* storage = new_storage();
  *storage = Storage{static_cast<char*>(block), block, bytes, 1, nullptr};
  tensor->storage = storage;
  tensor->data = storage->base;
  tensor->dtype = dtype;
  set_shape(tensor, rank, sizes, strides);
  return tensor;
}

Tensor* Call::empty_contiguous(int32_t rank, const int64_t* sizes, int32_t dtype, const Tensor* last) {
  int64_t strides[AOTPACK_MAX_RANK];
  if (rank > AOTPACK_MAX_RANK) throw_invalid("a tensor of rank " + std::to_string(rank) + " is not supported");
  contiguous_strides(rank, sizes, strides);
  return empty(rank, sizes, strides, dtype, last);
}

Tensor* Call::borrow(void* data, int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype) {
  Tensor* tensor = new_tensor();
  Storage* storage = new_storage();
  *storage = Storage{static_cast<char*>(data), nullptr, 0, 1, nullptr};
  tensor->storage = storage;
  tensor->data = storage->base;
  tensor->dtype = dtype;
  set_shape(tensor, rank, sizes, strides);
  return tensor;
}

Tensor* Call::borrow(const aotpack_module_tensor& source) {
  return borrow(source.data, source.rank, source.sizes, source.strides, source.dtype);
}

Tensor* Call::view(const Tensor* source, int32_t rank, const int64_t* sizes, const int64_t* strides, int64_t offset) {
  if (rank > AOTPACK_MAX_RANK) throw_invalid("a tensor of rank " + std::to_string(rank) + " is not supported");
  Tensor* tensor = new_tensor();
  tensor->storage = source->storage;
  ++tensor->storage->references;
  tensor->dtype = source->dtype;
  tensor->data = source->storage->base + offset * element_size(source->dtype);
  set_shape(tensor, rank, sizes, strides);
  return tensor;
}

Tensor* Call::retain(const Tensor* source) {
  Tensor* tensor = new_tensor();
  tensor->storage = source->storage;
  ++tensor->storage->references;
  tensor->dtype = source->dtype;
  tensor->data = source->data;
  set_shape(tensor, source->rank, source->sizes, source->strides);
  return tensor;
}

void Call::drop(Tensor* tensor) {
  Storage* storage = tensor->storage;
  if (--storage->references == 0) {
    if (storage->is_placed) forget_place(storage);
    if (storage->block != nullptr) release(*storage);
    storage->next_free = free_storages_;
    free_storages_ = storage;
  }
  tensor->next_free = free_tensors_;
  free_tensors_ = tensor;
}

// The arena goes with the call: results that are in it after all get memory of their own.
void Call::leave_arena(Tensor* const* results, uint32_t count) {
  for (uint32_t n = 0; n < count; ++n) {
    Storage* storage = results[n]->storage;
    if (!storage->is_placed) continue;
    char* const before = storage->base;
    char* const block = static_cast<char*>(allocate(storage->nbytes));
    std::memcpy(block, before, static_cast<size_t>(storage->nbytes));
    forget_place(storage);
    storage->base = block;
    storage->block = block;
    for (uint32_t i = n; i < count; ++i) {
      if (results[i]->storage == storage) results[i]->data = block + (results[i]->data - before);
    }
  }
}

void Call::give(Tensor* const* tensors, uint32_t count, aotpack_module_tensor* out) {
  leave_arena(tensors, count);
  for (uint32_t n = 0; n < count; ++n) {
    const Tensor* tensor = tensors[n];
    out[n].data = tensor->data;
    out[n].block = tensor->storage->block;
    out[n].dtype = tensor->dtype;
    out[n].rank = tensor->rank;
    for (int32_t i = 0; i < tensor->rank; ++i) {
      out[n].sizes[i] = tensor->sizes[i];
      out[n].strides[i] = tensor->strides[i];
    }
  }
  // Only now, as outputs may share a block: from here on the runtime owns it.
  for (uint32_t n = 0; n < count; ++n) tensors[n]->storage->block = nullptr;
}

Tensor* contiguous(const Tensor* source) {
  if (source->is_contiguous()) return Call::current().retain(source);
  Owned copy(Call::current().empty_contiguous(source->rank, source->sizes, source->dtype));
  copy_strided(copy.get(), source);
  return copy.release();
}

}  // namespace aotpack::module
