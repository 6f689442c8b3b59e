// The CTC loss and its gradient: Graves, Fernández, Gomez and Schmidhuber, "Connectionist Temporal Classification"
// (2006), equations 6 to 16, in logarithms. Batch elements are independent.
#include "declare/ctc.h"

#include <algorithm>
#include <cmath>

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

// The arguments, checked: what is read of them lies inside.
struct Problem {
  int64_t steps, batch, labels, width, blank;
  bool rows;  // targets [B, S] and not behind each other
  Owned log_probs, targets, input_lengths, target_lengths;
  Scratch starts;  // where the targets of each batch element begin

  Problem(Tensor* given, Tensor* given_targets, Tensor* given_inputs, Tensor* given_lengths, int64_t blank_label)
      : blank(blank_label),
        rows(given_targets->rank == 2),
        log_probs(contiguous(given)),
        targets(convert_contiguous(given_targets, AOTPACK_DTYPE_INT64)),
        input_lengths(convert_contiguous(given_inputs, AOTPACK_DTYPE_INT64)),
        target_lengths(convert_contiguous(given_lengths, AOTPACK_DTYPE_INT64)),
        starts(given->rank == 3 ? given->sizes[1] * 8 : 0) {
    if (given->rank != 3) throw_invalid("ctc_loss expects log_probs of 3 dims");
    if (given_targets->rank != 1 && given_targets->rank != 2) throw_invalid("ctc_loss expects targets of 1 or 2 dims");
    steps = given->sizes[0];
    batch = given->sizes[1];
    labels = given->sizes[2];
    width = 2 * given_targets->sizes[given_targets->rank - 1] + 1;
    if (given->numel() == 0) throw_invalid("log_probs tensor must not be empty");
    if (blank < 0 || blank >= labels) throw_invalid("blank must be in label range");
    if (input_lengths->numel() != batch) throw_invalid("input_lengths must be of size batch_size");
    if (target_lengths->numel() != batch) throw_invalid("target_lengths must be of size batch_size");
    if (rows && given_targets->sizes[0] != batch) {
      throw_invalid("Expected tensor to have size " + std::to_string(batch) + " at dimension 0, but got size " +
                    std::to_string(given_targets->sizes[0]) + " for argument #2 'targets'");
    }
    int64_t next = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t steps_of = input_length(b), length = target_length(b);
      if (steps_of < 0) throw_length("input_lengths", "at least 0", steps_of);
      if (steps_of > steps) throw_length("input_lengths", "at most " + std::to_string(steps), steps_of);
      if (length < 0) throw_length("target_lengths", "at least 0", length);
      const int64_t stored = given_targets->sizes[given_targets->rank - 1];
      starts.as<int64_t>()[b] = rows ? b * stored : next;
      if (length > stored - (rows ? 0 : next)) {
        throw_invalid("Expected tensor to have size at least " + std::to_string(rows ? length : next + length) +
                      " at dimension " + (rows ? "1" : "0") + ", but got size " + std::to_string(stored) +
                      " for argument #2 'targets'");
      }
      next += length;
      for (int64_t i = 0; i < length; ++i) {
        const int64_t label = target(b)[i];
        if (label < 0 || label >= labels) {
          throw_invalid("ctc_loss: target " + std::to_string(label) + " is not in [0, " + std::to_string(labels) + ")");
        }
      }
    }
    if (!rows && next != given_targets->sizes[0]) {
      throw_invalid("Expected tensor to have size " + std::to_string(next) + " at dimension 0, but got size " +
                    std::to_string(given_targets->sizes[0]) + " for argument #2 'targets'");
    }
  }

  int64_t input_length(int64_t b) const { return input_lengths->as<int64_t>()[b]; }
  int64_t target_length(int64_t b) const { return target_lengths->as<int64_t>()[b]; }
  const int64_t* target(int64_t b) const { return targets->as<int64_t>() + starts.as<int64_t>()[b]; }
  template <typename T>
  const T* step(int64_t t, int64_t b) const {
    return log_probs->as<T>() + (t * batch + b) * labels;
  }
  int64_t parts() const { return parts_for(batch, static_cast<double>(steps * width) * 30); }

 private:
  [[noreturn]] static void throw_length(const char* name, const std::string& bound, int64_t value) {
    throw_invalid(std::string("Expected ") + name + " to have value " + bound + ", but got value " +
                  std::to_string(value) + " (while checking arguments for ctc_loss_allocate_outputs)");
  }
};

template <typename T>
constexpr T kNone = -std::numeric_limits<T>::infinity();

// log(exp(a) + exp(b) + exp(c))
template <typename T>
T log_sum(T a, T b, T c = kNone<T>) {
  T most = std::max({a, b, c});
  if (most == kNone<T>) most = 0;  // none of them, or NaN
  return std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most)) + most;
}

// The target with blanks around and between its labels: the label at place s of [0, 2 length].
struct Path {
  const int64_t* target;
  int64_t blank;
  int64_t operator[](int64_t s) const { return (s & 1) == 0 ? blank : target[s / 2]; }
};

template <typename T>
T likelihood(const Problem& p, int64_t b, T* alpha) {
  const int64_t steps = p.input_length(b), last = 2 * p.target_length(b), width = p.width;
  const Path path{p.target(b), p.blank};
  std::fill(alpha, alpha + p.steps * width, kNone<T>);
  if (steps == 0) return last == 0 ? T(0) : -kNone<T>;
  alpha[0] = p.step<T>(0, b)[p.blank];
  if (last > 0) alpha[1] = p.step<T>(0, b)[path[1]];
  for (int64_t t = 1; t < steps; ++t) {
    const T* before = alpha + (t - 1) * width;
    T* now = alpha + t * width;
    const T* log_probs = p.step<T>(t, b);
    for (int64_t s = 0; s <= last; ++s) {
      const T one = s > 0 ? before[s - 1] : kNone<T>;
      const T two = s > 1 && path[s - 2] != path[s] ? before[s - 2] : kNone<T>;
      now[s] = log_sum(before[s], one, two) + log_probs[path[s]];
    }
  }
  const T* end = alpha + (steps - 1) * width;
  return last == 0 ? -end[0] : -log_sum(end[last], end[last - 1]);
}

// `beta` has room for two steps; `gradient` [T, B, C] is that of all.
template <typename T>
void differentiate(const Problem& p, int64_t b, const T* alpha, T nll, T grad, bool zero_infinity, T* beta,
                   T* gradient) {
  const int64_t steps = p.input_length(b), last = 2 * p.target_length(b), width = p.width;
  const Path path{p.target(b), p.blank};
  for (int64_t t = 0; t < p.steps; ++t) std::fill_n(gradient + (t * p.batch + b) * p.labels, p.labels, T(0));
  if (zero_infinity && nll == -kNone<T>) return;
  T* now = beta;
  T* after = beta + width;
  for (int64_t t = steps - 1; t >= 0; --t, std::swap(now, after)) {
    const T* log_probs = p.step<T>(t, b);
    T* out = gradient + (t * p.batch + b) * p.labels;
    std::fill_n(out, p.labels, kNone<T>);
    for (int64_t s = last; s >= 0; --s) {
      if (t == steps - 1) {
        now[s] = s >= last - 1 ? log_probs[path[s]] : kNone<T>;
      } else {
        const T one = s < last ? after[s + 1] : kNone<T>;
        const T two = s < last - 1 && path[s + 2] != path[s] ? after[s + 2] : kNone<T>;
        now[s] = log_sum(after[s], one, two) + log_probs[path[s]];
      }
      out[path[s]] = log_sum(out[path[s]], alpha[t * width + s] + now[s]);
    }
    for (int64_t c = 0; c < p.labels; ++c) {
      out[c] = (std::exp(log_probs[c]) - std::exp(out[c] + nll - log_probs[c])) * grad;
    }
  }
}

template <typename F>
void dispatch_floats(const Tensor* tensor, F f) {
  if (tensor->dtype == AOTPACK_DTYPE_FLOAT32) return f(float{});
  if (tensor->dtype == AOTPACK_DTYPE_FLOAT64) return f(double{});
  throw_invalid(std::string("ctc_loss of ") + dtype_name(tensor->dtype) + " is not supported");
}

}  // namespace

void aoti_torch_cpu_ctc_loss(AotpackTensor log_probs, AotpackTensor targets, AotpackTensor input_lengths,
                             AotpackTensor target_lengths, int64_t blank, int32_t, AotpackTensor* ret0,
                             AotpackTensor* ret1) {
  Call& call = Call::current();
  const Problem p(log_probs, targets, input_lengths, target_lengths, blank);
  const int64_t sizes[3] = {p.batch, p.steps, p.width};
  Owned nll(call.empty_contiguous(1, sizes, log_probs->dtype));
  Owned alpha(call.empty_contiguous(3, sizes, log_probs->dtype));
  dispatch_floats(log_probs, [&](auto tag) {
    using T = decltype(tag);
    for_parts(p.parts(), p.batch, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        nll->as<T>()[b] = likelihood<T>(p, b, alpha->as<T>() + b * p.steps * p.width);
      }
    });
  });
  *ret0 = nll.release();
  *ret1 = alpha.release();
}

void aoti_torch_cpu_ctc_loss_backward(AotpackTensor grad, AotpackTensor log_probs, AotpackTensor targets,
                                      AotpackTensor input_lengths, AotpackTensor target_lengths, AotpackTensor nll,
                                      AotpackTensor log_alpha, int64_t blank, int32_t zero_infinity,
                                      AotpackTensor* ret0) {
  const Problem p(log_probs, targets, input_lengths, target_lengths, blank);
  Owned grads(convert_contiguous(grad, log_probs->dtype)), losses(contiguous(nll)), alpha(contiguous(log_alpha));
  Owned result(Call::current().empty_contiguous(3, log_probs->sizes, log_probs->dtype));
  const int64_t parts = p.parts();
  Scratch beta(std::max<int64_t>(parts, 1) * 2 * p.width * element_size(log_probs->dtype));
  dispatch_floats(log_probs, [&](auto tag) {
    using T = decltype(tag);
    for_parts(parts, p.batch, [&](int64_t part, int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        differentiate<T>(p, b, alpha->as<T>() + b * p.steps * p.width, losses->as<T>()[b], grads->as<T>()[b],
                         zero_infinity != 0, beta.as<T>() + part * 2 * p.width, result->as<T>());
      }
    });
  });
  *ret0 = result.release();
}
