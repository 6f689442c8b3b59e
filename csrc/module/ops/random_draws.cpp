// Draws from distributions that pointwise code cannot express.
#include "declare/random_draws.h"

#include <algorithm>

#include "ops/samplers.h"
#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// Element i of the result is f(element i of the inputs, Philox(seed, i)); all are of `like`'s sizes.
template <typename F>
Tensor* drawn_like(const Tensor* like, const Tensor* other, const Tensor* seed, const char* op, F f) {
  const uint64_t key = seed_of(seed);
  Owned first(contiguous(like)), second(other == nullptr ? nullptr : convert_contiguous(other, like->dtype));
  Owned result(Call::current().empty_contiguous(like->rank, like->sizes, like->dtype));
  const int64_t n = like->numel();
  dispatch(like->dtype, op, [&](auto tag) {
    using T = decltype(tag);
    const T* x = first->as<T>();
    const T* y = second.get() == nullptr ? x : second->as<T>();
    T* out = result->as<T>();
    for_parts(parts_for(n, 100), n, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Philox random(key, static_cast<uint64_t>(i));
        out[i] = f(x[i], y[i], random);
      }
    });
  });
  return result.release();
}

template <typename T>
double real(T value) {
  return static_cast<double>(static_cast<Compute<T>>(value));
}

// The smallest normal number of a floating type.
template <typename T>
double smallest() {
  if constexpr (std::is_same_v<T, Float16>) return 0x1p-14;
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-126;
  return static_cast<double>(std::numeric_limits<T>::min());
}

void require_floating(const Tensor* tensor, const char* op) {
  if (!is_floating_dtype(tensor->dtype)) {
    throw_invalid(std::string(op) + " of " + dtype_name(tensor->dtype) + " is not supported");
  }
}

}  // namespace

void aoti_torch_cpu_random_integers(int64_t low, int64_t last, const int64_t* size, int64_t size_len,
                                    AotpackTensor seed, AotpackTensor* ret0) {
  if (low > last) {
    throw_invalid("random_ expects 'from' to be less than 'to', but got from=" + std::to_string(low) +
                  " >= to=" + std::to_string(static_cast<int64_t>(static_cast<uint64_t>(last) + 1)));
  }
  const uint64_t key = seed_of(seed);
  const uint64_t span = static_cast<uint64_t>(last) - static_cast<uint64_t>(low) + 1;
  Owned result(Call::current().empty_contiguous(static_cast<int32_t>(size_len), size, AOTPACK_DTYPE_INT64));
  int64_t* out = result->as<int64_t>();
  const int64_t n = result->numel();
  for_parts(parts_for(n, 20), n, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      Philox random(key, static_cast<uint64_t>(i));
      out[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + random.below(span));
    }
  });
  *ret0 = result.release();
}

void aoti_torch_cpu_random_permutation(int64_t n, AotpackTensor seed, int32_t dtype, AotpackTensor* ret0) {
  if (n < 0) throw_invalid("n must be non-negative, got" + std::to_string(n));
  Owned result(Call::current().empty_contiguous(1, &n, dtype));
  Philox random(seed_of(seed), 0);
  dispatch(dtype, "randperm", [&](auto tag) {
    using T = decltype(tag);
    // What the type counts to without gaps.
    int64_t most = std::numeric_limits<int64_t>::max();
    if constexpr (std::is_same_v<T, bool>) {
      throw_invalid("randperm of bool is not supported");
    } else if constexpr (is_floating<T>) {
      most = int64_t{1} << (std::is_same_v<T, Float16>    ? 11
                            : std::is_same_v<T, BFloat16> ? 8
                            : std::is_same_v<T, float>    ? 24
                                                          : 53);
    } else {
      most = static_cast<int64_t>(std::numeric_limits<T>::max());
    }
    if (n > 0 && n - 1 > most) {
      throw_invalid("n cannot be greater than " + std::to_string(most) + "+1 for " + dtype_name(dtype) + " type.");
    }
    T* out = result->as<T>();
    for (int64_t i = 0; i < n; ++i) out[i] = convert<T>(i);
    // Fisher and Yates's shuffle.
    for (int64_t i = 0; i + 1 < n; ++i) {
      std::swap(out[i], out[i + static_cast<int64_t>(random.below(static_cast<uint64_t>(n - i)))]);
    }
  });
  *ret0 = result.release();
}

void aoti_torch_cpu_random_poisson(AotpackTensor rate, AotpackTensor seed, AotpackTensor* ret0) {
  require_floating(rate, "poisson");
  Owned rates(convert_contiguous(rate, AOTPACK_DTYPE_FLOAT64));
  const double* at = rates->as<double>();
  for (int64_t i = 0, n = rates->numel(); i < n; ++i) {
    if (!(at[i] >= 0)) throw_invalid("invalid Poisson rate, expected rate to be non-negative");
  }
  *ret0 = drawn_like(rate, nullptr, seed, "poisson", [](auto x, auto, Philox& random) {
    return convert<decltype(x)>(sample_poisson(real(x), random));
  });
}

void aoti_torch_cpu_random_binomial(AotpackTensor count, AotpackTensor prob, AotpackTensor seed, AotpackTensor* ret0) {
  require_floating(count, "binomial");
  *ret0 = drawn_like(count, prob, seed, "binomial", [](auto n, auto p, Philox& random) {
    return convert<decltype(n)>(sample_binomial(real(n), real(p), random));
  });
}

void aoti_torch_cpu_random_gamma(AotpackTensor alpha, AotpackTensor seed, AotpackTensor* ret0) {
  require_floating(alpha, "_standard_gamma");
  *ret0 = drawn_like(alpha, nullptr, seed, "_standard_gamma", [](auto x, auto, Philox& random) {
    using T = decltype(x);
    const double draw = std::exp(sample_log_gamma(real(x), random));
    // As in torch: never 0, whose logarithm the density needs.
    return convert<T>(draw < smallest<T>() ? smallest<T>() : draw);
  });
}

void aoti_torch_cpu_random_dirichlet(AotpackTensor alpha, AotpackTensor seed, AotpackTensor* ret0) {
  require_floating(alpha, "_sample_dirichlet");
  if (alpha->rank < 1) throw_invalid("_sample_dirichlet expects at least one dim");
  const uint64_t key = seed_of(seed);
  Owned concentration(convert_contiguous(alpha, AOTPACK_DTYPE_FLOAT64));
  Owned result(Call::current().empty_contiguous(alpha->rank, alpha->sizes, alpha->dtype));
  const int64_t k = alpha->sizes[alpha->rank - 1], rows = k == 0 ? 0 : alpha->numel() / k;
  dispatch(alpha->dtype, "_sample_dirichlet", [&](auto tag) {
    using T = decltype(tag);
    double* logs = concentration->as<double>();
    T* out = result->as<T>();
    for_parts(parts_for(rows, 100.0 * static_cast<double>(k)), rows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        double* log_draw = logs + row * k;
        double most = -HUGE_VAL, sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          Philox random(key, static_cast<uint64_t>(row * k + i));
          log_draw[i] = sample_log_gamma(log_draw[i], random);
          most = std::max(most, log_draw[i]);
        }
        for (int64_t i = 0; i < k; ++i) sum += std::exp(log_draw[i] - most);
        for (int64_t i = 0; i < k; ++i) {
          const double share = std::exp(log_draw[i] - most) / sum;
          // As in torch: inside of the simplex, where the density is finite.
          out[row * k + i] = convert<T>(share < smallest<T>()   ? smallest<T>()
                                        : share > 0x1.fffffep-1 ? 0x1.fffffep-1
                                                                : share);
        }
      }
    });
  });
  *ret0 = result.release();
}

void aoti_torch_cpu_random_multinomial(AotpackTensor weights, int64_t samples, int32_t replacement, AotpackTensor seed,
                                       AotpackTensor* ret0) {
  require_floating(weights, "multinomial");
  if (weights->rank != 1 && weights->rank != 2) throw_invalid("prob_dist must be 1 or 2 dim");
  if (samples <= 0) throw_invalid("cannot sample n_sample <= 0 samples");
  const int64_t k = weights->sizes[weights->rank - 1], rows = weights->rank == 2 ? weights->sizes[0] : 1;
  if (replacement == 0 && samples > k) {
    throw_invalid("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  }
  const uint64_t key = seed_of(seed);
  Owned mass(convert_contiguous(weights, AOTPACK_DTYPE_FLOAT64));
  double* values = mass->as<double>();
  for (int64_t i = 0; i < rows * k; ++i) {
    if (!(values[i] >= 0) || std::isinf(values[i])) {
      throw_invalid("probability tensor contains either `inf`, `nan` or element < 0");
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i) sum += values[row * k + i];
    if (!(sum > 0)) throw_invalid("invalid multinomial distribution (sum of probabilities <= 0)");
  }
  const int64_t sizes[2] = {weights->rank == 2 ? rows : samples, samples};
  Owned result(Call::current().empty_contiguous(weights->rank, sizes, AOTPACK_DTYPE_INT64));
  int64_t* out = result->as<int64_t>();
  Scratch order(replacement != 0 ? 0 : rows * k * 8);
  const double cost = static_cast<double>(replacement != 0 ? samples * 100 + k : k * 50);
  for_parts(parts_for(rows, cost), rows, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      Philox random(key, static_cast<uint64_t>(row));
      double* p = values + row * k;
      int64_t* drawn = out + row * samples;
      if (replacement != 0) {
        int64_t last = 0;
        for (int64_t i = 0; i < k; ++i) {
          if (p[i] > 0) last = i;
          if (i > 0) p[i] += p[i - 1];
        }
        for (int64_t s = 0; s < samples; ++s) {
          // The first whose cumulated mass is above the draw: one of no mass never is.
          const int64_t found = std::upper_bound(p, p + k, random.unit() * p[k - 1]) - p;
          drawn[s] = std::min(found, last);
        }
        continue;
      }
      // Exponential races (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006): arrivals at
      // rate p, in order, are draws without replacement. Those of no mass come last.
      int64_t* places = order.as<int64_t>() + row * k;
      for (int64_t i = 0; i < k; ++i) {
        const double arrival = -std::log(random.open_unit());
        p[i] = p[i] > 0 ? arrival / p[i] : HUGE_VAL;
        places[i] = i;
      }
      std::partial_sort(places, places + samples, places + k,
                        [p](int64_t a, int64_t b) { return p[a] != p[b] ? p[a] < p[b] : a < b; });
      std::copy(places, places + samples, drawn);
    }
  });
  *ret0 = result.release();
}
