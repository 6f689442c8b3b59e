// Embedding bags for training, in all dtypes: their indices' bags beside the result, and both gradients. Sums are made
// in float, or in double where tables are.
#include "declare/embedding_bag_grad.h"

#include "ops/slices.h"
#include "tensor.h"

using namespace aotpack::module;

namespace {

constexpr int64_t kMean = 1, kMax = 2;

Tensor* as_int64(Tensor* source) {
  if (source->dtype != AOTPACK_DTYPE_INT64 && source->dtype != AOTPACK_DTYPE_INT32) {
    throw_invalid(std::string("embedding_bag does not support indices of ") + dtype_name(source->dtype));
  }
  return source->dtype == AOTPACK_DTYPE_INT64 ? contiguous(source) : convert_contiguous(source, AOTPACK_DTYPE_INT64);
}

// `tensor` itself, or with the dtype that is asked for.
Tensor* narrowed(Owned* tensor, int32_t dtype) {
  return (*tensor)->dtype == dtype ? tensor->release() : convert_contiguous(tensor->get(), dtype);
}

void check_indices(const Tensor* indices, int64_t rows) {
  const int64_t* values = indices->as<int64_t>();
  const int64_t count = indices->numel();
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] < 0 || values[i] >= rows) {
      throw_invalid("embedding_bag: an index is out of range for a table of " + std::to_string(rows) + " rows");
    }
  }
}

void check_bags(const Tensor* offset2bag, int64_t indices, int64_t bags) {
  const int64_t* values = offset2bag->as<int64_t>();
  bool fine = offset2bag->numel() == indices;
  for (int64_t i = 0; i < indices && fine; ++i) fine = values[i] >= 0 && values[i] < bags;
  if (!fine) throw_invalid("embedding_bag: offset2bag does not say which bag each index is in");
}

// The bag of each index. Bags end where the next one begins, the last one with the indices.
void fill_bags(const Tensor* offsets, int64_t bags, int64_t indices, int64_t* bag_of) {
  const int64_t* begin = offsets->as<int64_t>();
  int64_t before = 0;
  for (int64_t i = 0; i < offsets->numel(); ++i) {
    if (begin[i] < before || begin[i] > indices || (i == 0 && begin[i] != 0)) {
      throw_invalid("embedding_bag: offsets must begin with 0, not fall, and not exceed the number of indices");
    }
    before = begin[i];
  }
  if (bags == 0 && indices > 0) throw_invalid("embedding_bag: indices without a bag");
  for (int64_t bag = 0; bag < bags; ++bag) {
    const int64_t end = bag + 1 < bags ? begin[bag + 1] : indices;
    std::fill(bag_of + begin[bag], bag_of + std::max(begin[bag], end), bag);
  }
}

// What the gradient of each row in use is divided by, [rows] and as much scratch behind it. Eager's on CPU (torch 2.11
// to 2.13): not how often the row itself is used but, for the n-th row in use, the row of the n-th of the sorted
// indices.
void fill_frequencies(const Tensor* indices, int64_t rows, int64_t* divisors) {
  int64_t* uses = divisors + rows;
  std::fill_n(divisors, 2 * rows, int64_t{0});
  for (int64_t i = 0; i < indices->numel(); ++i) ++uses[indices->as<int64_t>()[i]];
  int64_t number = 0, row = 0, before = 0;
  for (int64_t i = 0; i < rows; ++i) {
    if (uses[i] == 0) continue;
    while (before + uses[row] <= number) before += uses[row++];
    divisors[i] = uses[row];
    ++number;
  }
}

struct Bags {
  int64_t indices, bags, dim, mode, padding;
  const int64_t* index;
  const int64_t* begin;
  int64_t* sizes;
  int64_t* sources;  // [bags, dim] in mode max
};

template <typename T>
void pool(const Bags& b, const T* table, const T* factors, T* y) {
  using C = Compute<T>;
  const double each = static_cast<double>(b.indices) / static_cast<double>(std::max<int64_t>(b.bags, 1));
  const int64_t parts = parts_for(b.bags, each * static_cast<double>(b.dim));
  Scratch scratch(parts * b.dim * static_cast<int64_t>(sizeof(C)));
  for_parts(parts, b.bags, [&](int64_t part, int64_t first, int64_t last) {
    C* sums = scratch.as<C>() + part * b.dim;
    for (int64_t bag = first; bag < last; ++bag) {
      std::fill(sums, sums + b.dim, C(0));
      int64_t* sources = b.mode == kMax ? b.sources + bag * b.dim : nullptr;
      if (sources != nullptr) std::fill(sources, sources + b.dim, int64_t{0});
      int64_t count = 0;
      const int64_t end = bag + 1 < b.bags ? b.begin[bag + 1] : b.indices;
      for (int64_t i = b.begin[bag]; i < end; ++i) {
        if (b.index[i] == b.padding) continue;
        const T* row = table + b.index[i] * b.dim;
        if (b.mode == kMax) {
          for (int64_t j = 0; j < b.dim; ++j) {
            const C value = static_cast<C>(row[j]);
            if (count == 0 || value > sums[j]) sums[j] = value, sources[j] = b.index[i];
          }
        } else {
          const C factor = factors == nullptr ? C(1) : static_cast<C>(factors[i]);
          for (int64_t j = 0; j < b.dim; ++j) sums[j] += factor * static_cast<C>(row[j]);
        }
        ++count;
      }
      b.sizes[bag] = count;
      const C divisor = b.mode == kMean && count > 1 ? static_cast<C>(count) : C(1);
      for (int64_t j = 0; j < b.dim; ++j) y[bag * b.dim + j] = convert<T>(sums[j] / divisor);
    }
  });
}

template <typename F>
void dispatch_floating(int32_t dtype, F f) {
  dispatch(dtype, "embedding_bag", [&]<typename T>(T value) {
    if constexpr (is_floating<T>) {
      f(value);
    } else {
      throw_invalid(std::string("embedding_bag of ") + dtype_name(dtype) + " is not supported");
    }
  });
}

}  // namespace

void aoti_torch_cpu_embedding_bag_full(AotpackTensor weight, AotpackTensor indices, AotpackTensor offsets, int64_t mode,
                                       AotpackTensor* per_sample_weights, int32_t include_last_offset,
                                       int64_t padding_idx, AotpackTensor* ret0, AotpackTensor* ret1,
                                       AotpackTensor* ret2, AotpackTensor* ret3) {
  Call& call = Call::current();
  Owned table(contiguous(weight)), ids(as_int64(indices)), starts(as_int64(offsets));
  Owned factors(per_sample_weights == nullptr ? nullptr : contiguous(*per_sample_weights));
  check_indices(ids.get(), weight->sizes[0]);
  Bags b{};
  b.indices = ids->numel();
  b.bags = starts->numel() - (include_last_offset != 0 ? 1 : 0);
  if (b.bags < 0) throw_invalid("include_last_offset: numBags should be at least 1");
  b.dim = weight->sizes[1];
  b.mode = mode;
  b.padding = padding_idx;
  const int64_t sizes[2] = {b.bags, b.dim}, none = 0;
  Owned y(call.empty_contiguous(2, sizes, weight->dtype));
  Owned bag_of(call.empty_contiguous(1, &b.indices, AOTPACK_DTYPE_INT64));
  Owned counts(call.empty_contiguous(1, &b.bags, AOTPACK_DTYPE_INT64));
  Owned sources(mode == kMax ? call.empty_contiguous(2, sizes, AOTPACK_DTYPE_INT64)
                             : call.empty_contiguous(1, &none, AOTPACK_DTYPE_INT64));
  fill_bags(starts.get(), b.bags, b.indices, bag_of->as<int64_t>());
  b.index = ids->as<int64_t>();
  b.begin = starts->as<int64_t>();
  b.sizes = counts->as<int64_t>();
  b.sources = sources->as<int64_t>();
  dispatch_floating(weight->dtype, [&]<typename T>(T) {
    pool<T>(b, table->as<T>(), factors.get() == nullptr ? nullptr : factors->as<T>(), y->as<T>());
  });
  Owned first(narrowed(&bag_of, offsets->dtype)), second(narrowed(&counts, offsets->dtype));
  Owned third(narrowed(&sources, offsets->dtype));
  *ret0 = y.release();
  *ret1 = first.release();
  *ret2 = second.release();
  *ret3 = third.release();
}

void aoti_torch_cpu__embedding_bag_dense_backward(AotpackTensor grad, AotpackTensor indices, AotpackTensor offset2bag,
                                                  AotpackTensor bag_size, AotpackTensor maximum_indices,
                                                  int64_t num_weights, int32_t scale_grad_by_freq, int64_t mode,
                                                  AotpackTensor* per_sample_weights, int64_t padding_idx,
                                                  AotpackTensor* ret0) {
  Call& call = Call::current();
  Owned ids(as_int64(indices)), bags(as_int64(offset2bag)), counts(as_int64(bag_size));
  Owned factors(per_sample_weights == nullptr ? nullptr : contiguous(*per_sample_weights));
  Owned gradient(contiguous(grad));
  const int64_t count = ids->numel(), dim = grad->sizes[1], bag_count = grad->sizes[0];
  const int64_t sizes[2] = {num_weights, dim};
  const int32_t wide = grad->dtype == AOTPACK_DTYPE_FLOAT64 ? AOTPACK_DTYPE_FLOAT64 : AOTPACK_DTYPE_FLOAT32;
  Owned sums(call.empty_contiguous(2, sizes, wide));
  std::memset(sums->data, 0, static_cast<size_t>(sums->numel() * element_size(wide)));
  check_indices(ids.get(), num_weights);
  if (mode == kMax) {
    Owned sources(as_int64(maximum_indices));
    check_indices(sources.get(), num_weights);
    dispatch_floating(grad->dtype, [&]<typename T>(T) {
      using C = Compute<T>;
      for (int64_t bag = 0; bag < bag_count; ++bag) {
        if (counts->as<int64_t>()[bag] == 0) continue;
        for (int64_t j = 0; j < dim; ++j) {
          sums->as<C>()[sources->as<int64_t>()[bag * dim + j] * dim + j] +=
              static_cast<C>(gradient->as<T>()[bag * dim + j]);
        }
      }
    });
    *ret0 = narrowed(&sums, grad->dtype);
    return;
  }
  check_bags(bags.get(), count, bag_count);
  Scratch frequencies(scale_grad_by_freq != 0 ? num_weights * 16 : 0);
  if (scale_grad_by_freq != 0) fill_frequencies(ids.get(), num_weights, frequencies.as<int64_t>());
  dispatch_floating(grad->dtype, [&]<typename T>(T) {
    using C = Compute<T>;
    // Columns are shared out: rows may meet.
    const int64_t parts = parts_for(dim, static_cast<double>(count));
    for_parts(parts, dim, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = 0; i < count; ++i) {
        const int64_t index = ids->as<int64_t>()[i], bag = bags->as<int64_t>()[i];
        if (index == padding_idx) continue;
        C scale = factors.get() == nullptr ? C(1) : static_cast<C>(factors->as<T>()[i]);
        if (scale_grad_by_freq != 0) scale /= static_cast<C>(frequencies.as<int64_t>()[index]);
        const int64_t size = mode == kMean ? counts->as<int64_t>()[bag] : 1;
        if (size > 1) scale /= static_cast<C>(size);
        const T* from = gradient->as<T>() + bag * dim;
        C* to = sums->as<C>() + index * dim;
        for (int64_t j = begin; j < end; ++j) to[j] += scale * static_cast<C>(from[j]);
      }
    });
  });
  *ret0 = narrowed(&sums, grad->dtype);
}

void aoti_torch_cpu__embedding_bag_per_sample_weights_backward(AotpackTensor grad, AotpackTensor weight,
                                                               AotpackTensor indices, AotpackTensor offsets,
                                                               AotpackTensor offset2bag, int64_t, int64_t padding_idx,
                                                               AotpackTensor* ret0) {
  Call& call = Call::current();
  Owned gradient(contiguous(grad)), table(contiguous(weight)), ids(as_int64(indices)), bags(as_int64(offset2bag));
  const int64_t count = ids->numel(), dim = grad->sizes[1], bag_count = grad->sizes[0];
  check_indices(ids.get(), weight->sizes[0]);
  if (bags->numel() == 0 && count > 0) {  // eager leaves it out where its forward needs none
    Owned starts(as_int64(offsets)), made(call.empty_contiguous(1, &count, AOTPACK_DTYPE_INT64));
    fill_bags(starts.get(), bag_count, count, made->as<int64_t>());
    aoti_torch_cpu__embedding_bag_per_sample_weights_backward(grad, weight, indices, offsets, made.get(), 0,
                                                              padding_idx, ret0);
    return;
  }
  check_bags(bags.get(), count, bag_count);
  Owned y(call.empty_contiguous(1, &count, grad->dtype));
  dispatch_floating(grad->dtype, [&]<typename T>(T) {
    using C = Compute<T>;
    for_parts(parts_for(count, static_cast<double>(dim)), count, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t index = ids->as<int64_t>()[i];
        C sum = 0;
        const T* a = gradient->as<T>() + bags->as<int64_t>()[i] * dim;
        const T* b = table->as<T>() + index * dim;
        for (int64_t j = 0; j < dim && index != padding_idx; ++j) sum += static_cast<C>(a[j]) * static_cast<C>(b[j]);
        y->as<T>()[i] = convert<T>(sum);
      }
    });
  });
  *ret0 = y.release();
}
