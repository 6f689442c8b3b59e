// Distributions whose inverse has no closed form, by rejection. Parameters without such a distribution
// give NaN; none loops for ever.
#pragma once

#include "ops/philox.h"

namespace aotpack::module {

// log of a draw of Gamma(alpha, 1), alpha >= 0: Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables"
// (2000). Logarithms, since draws for small alpha are below what a double holds.
inline double sample_log_gamma(double alpha, Philox& random) {
  if (!(alpha >= 0)) return std::nan("");
  if (alpha == 0 || std::isinf(alpha)) return alpha == 0 ? -HUGE_VAL : HUGE_VAL;
  double boost = 0;
  if (alpha < 1) {
    boost = std::log(random.open_unit()) / alpha;
    alpha += 1;
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    double x, y;
    do {
      x = random.normal();
      y = 1 + c * x;
    } while (y <= 0);
    const double v = y * y * y, u = random.open_unit(), square = x * x;
    if (u < 1 - 0.0331 * square * square || std::log(u) < 0.5 * square + d * (1 - v + std::log(v))) {
      return boost + std::log(d * v);
    }
  }
}

// Poisson(rate), rate >= 0: products of uniforms (Knuth) for small rates, else PTRS (Hörmann, "The transformed
// rejection method for generating Poisson random variables", 1993).
inline double sample_poisson(double rate, Philox& random) {
  if (!(rate >= 0)) return std::nan("");
  if (rate == 0 || std::isinf(rate)) return rate;
  if (rate < 10) {
    const double floor = std::exp(-rate);
    double product = 1, count = 0;
    for (;;) {
      product *= random.open_unit();
      if (product <= floor) return count;
      count += 1;
    }
  }
  const double root = std::sqrt(rate), log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = random.open_unit() - 0.5, v = random.open_unit(), us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    int sign;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        -rate + k * log_rate - ::lgamma_r(k + 1, &sign)) {
      return k;
    }
  }
}

// What Stirling's formula misses of log k!.
inline double stirling_tail(double k) {
  static constexpr double kTail[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
                                     0.0166446911898211,  0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
                                     0.00925546218271273, 0.00833056343336287};
  if (k < 10) return kTail[static_cast<int>(k)];
  const double square = (k + 1) * (k + 1);
  return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

// Binomial(count, p): sums of geometric draws where count * p is small, else BTRS (Hörmann, "The generation of
// binomial random variates", 1993). As in torch, p outside of [0, 1] is the nearest end, and a negative count is 0.
inline double sample_binomial(double count, double p, Philox& random) {
  if (std::isnan(count) || std::isnan(p)) return std::nan("");
  if (count <= 0 || p <= 0) return 0;
  if (p >= 1 || std::isinf(count)) return count;
  if (p > 0.5) return count - sample_binomial(count, 1 - p, random);
  count = std::floor(count);
  if (count * p < 10) {
    const double log_q = std::log1p(-p);
    double trials = 0, successes = 0;
    for (;;) {
      trials += std::ceil(std::log(random.open_unit()) / log_q);
      if (trials > count) return successes;
      successes += 1;
    }
  }
  const double deviation = std::sqrt(count * p * (1 - p));
  const double b = 1.15 + 2.53 * deviation, a = -0.0873 + 0.0248 * b + 0.01 * p, c = count * p + 0.5;
  const double v_r = 0.92 - 4.2 / b, r = p / (1 - p), alpha = (2.83 + 5.1 / b) * deviation;
  const double m = std::floor((count + 1) * p);
  for (;;) {
    const double u = random.open_unit() - 0.5, us = 0.5 - std::fabs(u);
    double v = random.open_unit();
    const double k = std::floor((2 * a / us + b) * u + c);
    if (k < 0 || k > count) continue;
    if (us >= 0.07 && v <= v_r) return k;
    v = std::log(v * alpha / (a / (us * us) + b));
    const double bound = (m + 0.5) * std::log((m + 1) / (r * (count - m + 1))) +
                         (count + 1) * std::log((count - m + 1) / (count - k + 1)) +
                         (k + 0.5) * std::log(r * (count - k + 1) / (k + 1)) + stirling_tail(m) +
                         stirling_tail(count - m) - stirling_tail(k) - stirling_tail(count - k);
    if (v <= bound) return k;
  }
}

}  // namespace aotpack::module
