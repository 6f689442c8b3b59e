// See ../operators.h.
#pragma once

#include "operators.h"

// clang-format off
void aoti_torch_cpu_histc(AotpackTensor self, int64_t bins, double min, double max, AotpackTensor* ret0);
// The edges of evenly spaced bins, one dim's behind the other's: x is [points, dims], result sum(bins) + dims numbers.
// range holds 2 numbers for each dim, or none: those of the data then.
void aoti_torch_cpu_histogram_edges(AotpackTensor x, const int64_t* bins, int64_t bins_len, const double* range, int64_t range_len, AotpackTensor* ret0);
// How many points (or how much weight, [points]) of x, [points, dims], are in each bin: [*bins]. edges as above.
void aoti_torch_cpu_histogram_counts(AotpackTensor x, AotpackTensor edges, const int64_t* bins, int64_t bins_len, AotpackTensor* weight, AotpackTensor* ret0);
// clang-format on
