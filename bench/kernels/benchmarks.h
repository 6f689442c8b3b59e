// The benchmarks, by operator.
#pragma once

namespace aotpack::kernels::bench {

void run_linears();
void run_products();
void run_quantized_linears();
void run_int8_networks();
void run_convolutions();
void run_depthwise_blocks();
void run_attention();
void run_recurrent_layers();
void run_pools();
void run_copies();

}  // namespace aotpack::kernels::bench
