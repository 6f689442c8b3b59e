// The API for C++ kernels of custom operators.
//
// A kernel is a function whose arguments and results follow the operator's schema (docs/custom_ops.md has the table):
//
//     // my::scale(Tensor x, float factor) -> Tensor
//     aotpack::op::Tensor scale(aotpack::op::Call& call, const aotpack::op::Tensor& x, double factor);
//
// `aotpack build` compiles it into the archive and checks the signature against the schema. The header is standalone:
// it includes only the standard library, and requires C++20. All names are in the inline namespace v1, which is part of
// the symbols of a compiled object: an object compiled with another version of this header does not link.
//
// Threads: a kernel is called on one thread; several calls of one kernel may run concurrently on different threads. The
// Call must not be used inside `parallel_for`.
#pragma once

#include <atomic>
#include <bit>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#define AOTPACK_OPERATOR_VERSION 1

namespace aotpack::op {
inline namespace v1 {

// Thrown by a kernel to fail the call with the error "<operator>: <message>".
class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

inline void check(bool condition, std::string_view message) {
  if (!condition) throw Error(std::string(message));
}

// ---- elements

// The values are those of module_abi.h and of torch.
enum class DType : int32_t {
  uint8 = 0,
  int8 = 1,
  int16 = 2,
  int32 = 3,
  int64 = 4,
  float16 = 5,
  float32 = 6,
  float64 = 7,
  complex64 = 9,
  complex128 = 10,
  boolean = 11,
  bfloat16 = 15,
  float8_e5m2 = 23,
  float8_e4m3fn = 24,
  float8_e5m2fnuz = 25,
  float8_e4m3fnuz = 26,
  uint16 = 27,
  uint32 = 28,
  uint64 = 29
};

// Rounds to nearest even, as torch does.
struct BFloat16 {
  uint16_t bits;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<uint16_t>(nan ? 0x7fc0u : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

// IEEE half precision. Rounds to nearest even, as torch does.
struct Float16 {
  uint16_t bits;
  Float16() = default;
  explicit Float16(float value) {
    auto word = std::bit_cast<uint32_t>(value);
    const auto sign = static_cast<uint16_t>((word >> 16) & 0x8000u);
    word &= 0x7fffffffu;
    if (word > 0x7f800000u) {
      bits = static_cast<uint16_t>(sign | 0x7e00u);
    } else if (word >= 0x477ff000u) {  // rounds to infinity
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (word < 0x38800000u) {  // subnormal: the adder rounds
      const float magnitude = std::bit_cast<float>(word) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(magnitude) - 0x3f000000u));
    } else {
      word += 0xc8000fffu + ((word >> 13) & 1u);
      bits = static_cast<uint16_t>(sign | (word >> 13));
    }
  }
  operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
    if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f));
  }
};

template <typename T>
struct DTypeOf;
#define AOTPACK_DTYPE_OF(type, name)            \
  template <>                                   \
  struct DTypeOf<type> {                        \
    static constexpr DType value = DType::name; \
  };
AOTPACK_DTYPE_OF(uint8_t, uint8)
AOTPACK_DTYPE_OF(int8_t, int8)
AOTPACK_DTYPE_OF(int16_t, int16)
AOTPACK_DTYPE_OF(int32_t, int32)
AOTPACK_DTYPE_OF(int64_t, int64)
AOTPACK_DTYPE_OF(Float16, float16)
AOTPACK_DTYPE_OF(float, float32)
AOTPACK_DTYPE_OF(double, float64)
AOTPACK_DTYPE_OF(std::complex<float>, complex64)
AOTPACK_DTYPE_OF(std::complex<double>, complex128)
AOTPACK_DTYPE_OF(uint16_t, uint16)
AOTPACK_DTYPE_OF(uint32_t, uint32)
AOTPACK_DTYPE_OF(uint64_t, uint64)
AOTPACK_DTYPE_OF(bool, boolean)
AOTPACK_DTYPE_OF(BFloat16, bfloat16)
#undef AOTPACK_DTYPE_OF

// The dtype of the element type T.
template <typename T>
inline constexpr DType dtype_of = DTypeOf<std::remove_cv_t<T>>::value;

// "float32", ...
constexpr const char* name_of(DType dtype) {
  switch (dtype) {
    case DType::uint8:
      return "uint8";
    case DType::int8:
      return "int8";
    case DType::int16:
      return "int16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::float16:
      return "float16";
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::complex64:
      return "complex64";
    case DType::complex128:
      return "complex128";
    case DType::boolean:
      return "bool";
    case DType::bfloat16:
      return "bfloat16";
    case DType::uint16:
      return "uint16";
    case DType::uint32:
      return "uint32";
    case DType::uint64:
      return "uint64";
    case DType::float8_e4m3fn:
      return "float8_e4m3fn";
    case DType::float8_e4m3fnuz:
      return "float8_e4m3fnuz";
    case DType::float8_e5m2:
      return "float8_e5m2";
    case DType::float8_e5m2fnuz:
      return "float8_e5m2fnuz";
  }
  return "unknown";
}

// Calls f(T{}) with the type T among `Types` that has this dtype; throws Error for other dtypes:
//
//     dispatch<float, double>(x.dtype(), [&](auto zero) { using T = decltype(zero); ... });
template <typename... Types, typename F>
void dispatch(DType dtype, F&& f) {
  const bool found = ((dtype == dtype_of<Types> ? (static_cast<void>(f(Types{})), true) : false) || ...);
  if (!found) throw Error(std::string("unsupported dtype ") + name_of(dtype));
}

// ---- tensors

// A strided view: an argument, or a tensor created by a Call. Cheap to copy; valid until the kernel returns. Sizes and
// strides count elements; an argument may have any strides, including 0 and overlapping strides.
class Tensor {
 public:
  DType dtype() const { return dtype_; }
  int64_t rank() const { return rank_; }
  std::span<const int64_t> sizes() const { return {sizes_, static_cast<size_t>(rank_)}; }
  std::span<const int64_t> strides() const { return {strides_, static_cast<size_t>(rank_)}; }
  // Throws Error if the dim does not exist. Negative dims count from the last.
  int64_t size(int64_t dim) const { return sizes_[wrapped(dim)]; }
  int64_t stride(int64_t dim) const { return strides_[wrapped(dim)]; }
  int64_t numel() const {
    int64_t count = 1;
    for (int64_t size : sizes()) count *= size;
    return count;
  }
  // Row-major without gaps.
  bool is_contiguous() const {
    int64_t expected = 1;
    for (int32_t d = rank_ - 1; d >= 0; --d) {
      if (sizes_[d] == 0) return true;
      if (sizes_[d] != 1 && strides_[d] != expected) return false;
      expected *= sizes_[d];
    }
    return true;
  }

  // Element (0, ..., 0), for reading. Throws Error if the element type is not T.
  template <typename T>
  const T* data() const {
    expect(dtype_of<T>);
    return static_cast<const T*>(data_);
  }
  // Element (0, ..., 0), for writing. Throws Error if the element type is not T, and for an argument that the schema
  // does not declare as written, `Tensor(a!)`.
  template <typename T>
  T* mutable_data() const {
    expect(dtype_of<T>);
    return static_cast<T*>(mutable_bytes());
  }
  const void* bytes() const { return data_; }
  void* mutable_bytes() const {
    check(writable_, "the kernel writes to an argument that its schema does not declare as written");
    return data_;
  }

  // For the glue between kernels and archives.
  Tensor(void* data, DType dtype, int32_t rank, const int64_t* sizes, const int64_t* strides, bool writable,
         void* handle)
      : data_(data),
        handle_(handle),
        sizes_(sizes),
        strides_(strides),
        dtype_(dtype),
        rank_(rank),
        writable_(writable) {}
  void* handle() const { return handle_; }

 private:
  size_t wrapped(int64_t dim) const {
    if (dim < -rank_ || dim >= rank_) {
      throw Error("there is no dim " + std::to_string(dim) + " in a tensor of rank " + std::to_string(rank_));
    }
    return static_cast<size_t>(dim < 0 ? dim + rank_ : dim);
  }
  void expect(DType dtype) const {
    if (dtype != dtype_) {
      throw Error(std::string("the kernel takes a tensor of ") + name_of(dtype_) + " for one of " + name_of(dtype));
    }
  }

  void* data_;
  void* handle_;
  const int64_t* sizes_;
  const int64_t* strides_;
  DType dtype_;
  int32_t rank_;
  bool writable_;
};

// A Python scalar of any type (`Scalar` in the schema).
class Scalar {
 public:
  enum class Kind : int32_t { integer, floating, boolean };
  Scalar(int64_t value) : integer_(value), kind_(Kind::integer) {}
  Scalar(double value) : floating_(value), kind_(Kind::floating) {}
  Scalar(bool value) : integer_(value ? 1 : 0), kind_(Kind::boolean) {}
  Kind kind() const { return kind_; }
  double as_double() const { return kind_ == Kind::floating ? floating_ : static_cast<double>(integer_); }
  // Throws Error for a float.
  int64_t as_int() const {
    check(kind_ != Kind::floating, "the kernel takes a float for an int");
    return integer_;
  }

 private:
  int64_t integer_ = 0;
  double floating_ = 0;
  Kind kind_;
};

// ---- the call

// The runtime's services for a kernel during one call. All allocations are freed when the kernel returns or throws,
// except the tensors that it returns.
class Call {
 public:
  // An uninitialised, row-major tensor, aligned to 64 bytes. Throws std::bad_alloc.
  Tensor empty(std::span<const int64_t> sizes, DType dtype) { return make(sizes.data(), nullptr, sizes.size(), dtype); }
  Tensor empty(std::initializer_list<int64_t> sizes, DType dtype) {
    return make(sizes.begin(), nullptr, sizes.size(), dtype);
  }
  // An uninitialised tensor with the given non-negative strides; sizes and strides have equal length.
  Tensor empty_strided(std::span<const int64_t> sizes, std::span<const int64_t> strides, DType dtype) {
    check(sizes.size() == strides.size(), "a tensor has as many strides as sizes");
    return make(sizes.data(), strides.data(), sizes.size(), dtype);
  }
  // The tensor itself if it is row-major, otherwise a row-major copy.
  virtual Tensor contiguous(const Tensor& source) = 0;
  // Uninitialised memory for `count` elements, aligned to 64 bytes. Throws std::bad_alloc.
  template <typename T>
  std::span<T> scratch(int64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64);
    check(count >= 0 && count <= INT64_MAX / static_cast<int64_t>(sizeof(T)), "no such number of elements");
    return {static_cast<T*>(allocate(count * static_cast<int64_t>(sizeof(T)))), static_cast<size_t>(count)};
  }
  // The number of threads that this call may use, at least 1.
  virtual int num_threads() const = 0;
  // A new seed for random numbers; determined by the seed of the caller's context.
  virtual uint64_t seed() = 0;

  // Calls f(begin, end) on ranges that partition [0, items), on the threads of this call. Only the last range may be
  // shorter than `grain`, so that little work stays on one thread. The first exception of f is rethrown here after all
  // ranges have ended.
  template <typename F>
  void parallel_for(int64_t items, int64_t grain, F&& f) {
    if (items <= 0) return;
    const int64_t least = grain < 1 ? 1 : grain;
    int64_t parts = items / least < num_threads() ? items / least : num_threads();
    if (parts <= 1) {
      f(int64_t{0}, items);
      return;
    }
    struct Work {
      F& f;
      int64_t items, parts;
      std::atomic_flag failed = ATOMIC_FLAG_INIT;
      std::exception_ptr error{};
    } work{f, items, parts};
    run_parts(
        parts,
        [](void* context, int64_t part) noexcept {
          auto& work = *static_cast<Work*>(context);
          const int64_t base = work.items / work.parts, rest = work.items % work.parts;
          const int64_t begin = base * part + (part < rest ? part : rest);
          try {
            work.f(begin, begin + base + (part < rest ? 1 : 0));
          } catch (...) {
            if (!work.failed.test_and_set()) work.error = std::current_exception();
          }
        },
        &work);
    if (work.error) std::rethrow_exception(work.error);
  }

 protected:
  Call() = default;
  ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  virtual Tensor make(const int64_t* sizes, const int64_t* strides, size_t rank, DType dtype) = 0;
  virtual void* allocate(int64_t bytes) = 0;
  virtual void run_parts(int64_t parts, void (*body)(void* context, int64_t part) noexcept, void* context) = 0;
};

// ---- for the generated glue code

namespace glue {

template <typename Expected, typename Function>
struct Fits : std::false_type {};
template <typename R, typename... A, typename S, typename... B>
struct Fits<R(A...), S (*)(B...)> {
  static constexpr bool same() {
    if constexpr (sizeof...(A) != sizeof...(B)) {
      return false;
    } else {
      return std::is_same_v<R, S> && (std::is_same_v<A, std::remove_cvref_t<B>> && ...);
    }
  }
  static constexpr bool value = same();
};
template <typename Expected, typename S, typename... B>
struct Fits<Expected, S (*)(B...) noexcept> : Fits<Expected, S (*)(B...)> {};

inline std::vector<Tensor> results(Tensor result) { return {result}; }
inline std::vector<Tensor> results(std::vector<Tensor> list) { return list; }
template <typename... T>
std::vector<Tensor> results(const std::tuple<T...>& values) {
  return std::apply([](const auto&... value) { return std::vector<Tensor>{value...}; }, values);
}

}  // namespace glue
}  // namespace v1
}  // namespace aotpack::op
