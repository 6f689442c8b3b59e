// Implicit reparameterization gradients, -(d/dparameter cdf) / pdf at a draw, of the Gamma and the
// Beta distribution. The approximations and their coefficients are those of PyTorch
// (aten/src/ATen/native/Distributions.h, BSD-3-Clause, Copyright (c) Facebook, Inc. and its affiliates); all is
// computed in double.
#pragma once

#include <cmath>

namespace aotpack::module {

// The logarithmic derivative of the gamma function: recurrence up to 10, then the asymptotic series (Abramowitz and
// Stegun, 6.3.5, 6.3.7 and 6.3.18). Infinite at its poles, as in torch.
inline double digamma(double x) {
  if (x == 0) return HUGE_VAL;
  double result = 0;
  if (x < 0) {
    if (x == std::floor(x)) return HUGE_VAL;
    constexpr double kPi = 3.141592653589793;
    result = -kPi / std::tan(kPi * x);
    x = 1 - x;
  }
  for (; x < 10; x += 1) result -= 1 / x;
  const double z = 1 / (x * x);
  // Bernoulli numbers B_2n / 2n.
  const double series =
      z *
      (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return result + std::log(x) - 0.5 / x - series;
}

inline double standard_gamma_gradient(double alpha, double x) {
  // A Taylor series for small x.
  if (x < 0.8) {
    double numerator = 1, denominator = alpha;
    double first = numerator / denominator, second = numerator / (denominator * denominator);
    for (int i = 1; i <= 5; ++i) {
      numerator *= -x / i;
      denominator += 1;
      first += numerator / denominator;
      second += numerator / (denominator * denominator);
    }
    const double power = std::pow(x, alpha);
    const double pdf = std::pow(x, alpha - 1) * std::exp(-x), cdf = power * first;
    const double result = -((std::log(x) - digamma(alpha)) * cdf - power * second) / pdf;
    return std::isnan(result) ? 0 : result;
  }
  // Rice's saddle point expansion for large alpha.
  if (alpha > 8) {
    if (0.9 * alpha <= x && x <= 1.1 * alpha) {
      const double first = 1 + 24 * alpha * (1 + 12 * alpha);
      const double second =
          1440 * (alpha * alpha) + 6 * x * (53 - 120 * x) - 65 * x * x / alpha + alpha * (107 + 3600 * x);
      return first * second / (1244160 * (alpha * alpha) * (alpha * alpha));
    }
    const double root = std::sqrt(8 * alpha), ratio = std::log(x / alpha);
    const double near = root / (alpha - x), far = std::pow(x - alpha - alpha * ratio, -1.5);
    const double term = ratio * (x < alpha ? near - far : near + far) -
                        std::sqrt(2 / alpha) * (alpha + x) / ((alpha - x) * (alpha - x));
    const double stirling = 1 + 1 / (12 * alpha) * (1 + 1 / (24 * alpha));
    return -stirling * x * term / root;
  }
  // A rational approximation in two variables.
  const double u = std::log(x / alpha), v = std::log(alpha);
  static constexpr double kOfU[3][8] = {
      {0.16009398, -0.094634809, 0.025146376, -0.0030648343, 1, 0.32668115, 0.10406089, 0.0014179084},
      {0.53487893, 0.1298071, 0.065735949, -0.0015649758, 0.16639465, 0.020070113, -0.0035938915, -0.00058392623},
      {0.040121004, -0.0065914022, -0.0026286047, -0.0013441777, 0.017050642, -0.0021309326, 0.00085092367,
       -1.5247877e-07}};
  double c[8];
  for (int i = 0; i < 8; ++i) c[i] = kOfU[0][i] + u * (kOfU[1][i] + u * kOfU[2][i]);
  const double p = c[0] + v * (c[1] + v * (c[2] + v * c[3])), q = c[4] + v * (c[5] + v * (c[6] + v * c[7]));
  return std::exp(p / q);
}

// Of Beta(alpha, beta) at an x near 0, by alpha: a Taylor series.
inline double beta_gradient_alpha_small(double x, double alpha, double beta) {
  const double factor = digamma(alpha) - digamma(alpha + beta) - std::log(x);
  double numerator = 1, series = numerator / alpha * (factor + 1 / alpha);
  for (int i = 1; i <= 10; ++i) {
    numerator *= (i - beta) * x / i;
    const double denominator = alpha + i;
    series += numerator / denominator * (factor + 1 / denominator);
  }
  const double result = x * std::pow(1 - x, -beta) * series;
  return std::isnan(result) ? 0 : result;
}

// Of Beta(alpha, beta) at an x near 0, by beta: a Taylor series.
inline double beta_gradient_beta_small(double x, double alpha, double beta) {
  const double factor = digamma(alpha + beta) - digamma(beta);
  double numerator = 1, betas = 1, d_betas = 0, series = factor / alpha;
  for (int i = 1; i <= 8; ++i) {
    numerator *= -x / i;
    d_betas = d_betas * (beta - i) + betas;
    betas = betas * (beta - i);
    series += numerator / (alpha + i) * (d_betas + factor * betas);
  }
  const double result = -std::pow(1 - x, 1 - beta) * series;
  return std::isnan(result) ? 0 : result;
}

// Of Beta(alpha, beta), both large, by alpha: Rice's saddle point expansion.
inline double beta_gradient_alpha_mid(double x, double alpha, double beta) {
  const double total = alpha + beta, mean = alpha / total;
  const double deviation = std::sqrt(alpha * beta / (total + 1)) / total;
  if (mean - 0.1 * deviation <= x && x <= mean + 0.1 * deviation) {
    // The expansion is singular at the mean.
    const double b2 = beta * beta, b3 = b2 * beta;
    const double inner = 8 * (1 - x) * (135 * beta - 11);
    const double third = (453 + 1620 * beta * (1 - x) - 455 * x) * beta + alpha * inner;
    const double second = 3 * (59 + 180 * beta - 90 * x) * b2 + alpha * third;
    const double first = (43 + 20 * (16 + 27 * beta) * x) * b3 + alpha * second;
    const double poly = 47 * x * b2 * b2 + alpha * first;
    const double numerator = (1 + 12 * alpha) * (1 + 12 * beta) / (total * total);
    const double denominator = 12960 * alpha * alpha * alpha * b2 * (1 + 12 * total);
    return numerator / (1 - x) * poly / denominator;
  }
  const double prefactor = -x / std::sqrt(2 * alpha * beta / total);
  const auto stirling = [](double n) { return 1 + 1 / (12 * n) + 1 / (288 * n * n); };
  const double offset = alpha * (x - 1) + beta * x;
  const double first = (2 * (alpha * alpha) * (x - 1) + alpha * beta * (x - 1) - x * (beta * beta)) /
                       (std::sqrt(2 * alpha / beta) * std::pow(total, 1.5) * offset * offset);
  const double half_log = 0.5 * std::log(alpha / (total * x));
  const double near = std::sqrt(8 * alpha * beta / total) / offset;
  const double far = std::pow(beta * std::log(beta / (total * (1 - x))) + alpha * std::log(alpha / (total * x)), -1.5);
  const double terms = first + half_log * (near + (x < mean ? far : -far));
  return stirling(alpha) * stirling(beta) / stirling(total) * prefactor * terms;
}

inline double dirichlet_gradient(double x, double alpha, double total) {
  const double beta = total - alpha, boundary = total * x * (1 - x);
  if (x <= 0.5 && boundary < 2.5) return beta_gradient_alpha_small(x, alpha, beta);
  if (x >= 0.5 && boundary < 0.75) return -beta_gradient_beta_small(1 - x, beta, alpha);
  if (alpha > 6 && beta > 6) return beta_gradient_alpha_mid(x, alpha, beta);
  // A rational correction to an analytic approximation.
  static constexpr double kNumerator[3][3][4] = {
      {{1.003668233, -0.01061107488, -0.0657888334, 0.01201642863},
       {0.6336835991, -0.3557432599, 0.05486251648, -0.001465281033},
       {-0.03276231906, 0.004474107445, 0.002429354597, -0.0001557569013}},
      {{0.221950385, -0.3187676331, 0.01799915743, 0.01074823814},
       {-0.2951249643, 0.06219954479, 0.01535556598, 0.001550077057},
       {0.02155310298, 0.004170831599, 0.001292462449, 6.976601077e-05}},
      {{-0.05980841433, 0.008441916499, 0.01085618172, 0.002319392565},
       {0.02911413504, 0.01400243777, -0.002721828457, 0.000751041181},
       {0.005900514878, -0.001936558688, -9.495446725e-06, 5.385558597e-05}}};
  static constexpr double kDenominator[3][3][4] = {
      {{1, -0.02924021934, -0.04438342661, 0.007285809825},
       {0.6357567472, -0.3473456711, 0.05454656494, -0.002407477521},
       {-0.03301322327, 0.004845219414, 0.00231480583, -0.0002307248149}},
      {{0.5925320577, -0.1757678135, 0.01505928619, 0.000564515273},
       {0.1014815858, -0.06589186703, 0.01272886114, -0.0007316646956},
       {-0.007258481865, 0.001096195486, 0.0003934994223, -4.12701925e-05}},
      {{0.06469649321, -0.0236701437, 0.002902096474, -5.896963079e-05},
       {0.001925008108, -0.002869809258, 0.0008000589141, -6.063713228e-05},
       {-0.0003477407336, 6.959756487e-05, 1.097287507e-05, -1.650964693e-06}}};
  const double u = std::log(x), a = std::log(alpha) - u, b = std::log(total) - a;
  const double power_u[3] = {1, u, u * u}, power_a[3] = {1, a, a * a};
  double p = 0, q = 0;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      const double *n = kNumerator[i][j], *d = kDenominator[i][j], ua = power_u[i] * power_a[j];
      p += ua * (n[0] + b * (n[1] + b * (n[2] + b * n[3])));
      q += ua * (d[0] + b * (d[1] + b * (d[2] + b * d[3])));
    }
  }
  return p / q * x * (digamma(total) - digamma(alpha)) / beta;
}

}  // namespace aotpack::module
