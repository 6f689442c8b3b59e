// Freezes the layout of the structs of module ABI version 2 and of C ABI version 3 (docs/abi.md). A change here is a
// new version.
#include <cstddef>

#include "aotpack/aotpack.h"
#include "aotpack/module_abi.h"

static_assert(sizeof(void*) == 8);

static_assert(sizeof(aotpack_module_tensor) == 280);
static_assert(offsetof(aotpack_module_tensor, data) == 0);
static_assert(offsetof(aotpack_module_tensor, block) == 8);
static_assert(offsetof(aotpack_module_tensor, dtype) == 16);
static_assert(offsetof(aotpack_module_tensor, rank) == 20);
static_assert(offsetof(aotpack_module_tensor, sizes) == 24);
static_assert(offsetof(aotpack_module_tensor, strides) == 152);

static_assert(sizeof(aotpack_module_device) == 8);
static_assert(offsetof(aotpack_module_device, type) == 0);
static_assert(offsetof(aotpack_module_device, index) == 4);

static_assert(sizeof(aotpack_module_asset) == 24);
static_assert(offsetof(aotpack_module_asset, data) == 0);
static_assert(offsetof(aotpack_module_asset, size) == 8);
static_assert(offsetof(aotpack_module_asset, handle) == 16);

static_assert(sizeof(aotpack_module_library_call) == 40);
static_assert(offsetof(aotpack_module_library_call, struct_size) == 0);
static_assert(offsetof(aotpack_module_library_call, operation) == 8);
static_assert(offsetof(aotpack_module_library_call, tensors) == 16);
static_assert(offsetof(aotpack_module_library_call, numbers) == 24);
static_assert(offsetof(aotpack_module_library_call, num_tensors) == 32);
static_assert(offsetof(aotpack_module_library_call, num_numbers) == 36);

static_assert(AOTPACK_MODULE_FEATURE_ASYNC == 1);
static_assert(AOTPACK_MODULE_FEATURE_HOST_STEPS == 2);

static_assert(sizeof(aotpack_module_call) == 128);
static_assert(offsetof(aotpack_module_call, struct_size) == 0);
static_assert(offsetof(aotpack_module_call, runtime) == 8);
static_assert(offsetof(aotpack_module_call, imports) == 16);
static_assert(offsetof(aotpack_module_call, inputs) == 24);
static_assert(offsetof(aotpack_module_call, constants) == 32);
static_assert(offsetof(aotpack_module_call, outputs) == 40);
static_assert(offsetof(aotpack_module_call, num_threads) == 48);
// All of version 1, of 56 bytes.
static_assert(offsetof(aotpack_module_call, input_devices) == 56);
static_assert(offsetof(aotpack_module_call, constant_devices) == 64);
static_assert(offsetof(aotpack_module_call, output_devices) == 72);
static_assert(offsetof(aotpack_module_call, stream) == 80);
static_assert(offsetof(aotpack_module_call, device) == 88);
static_assert(offsetof(aotpack_module_call, assets) == 96);
static_assert(offsetof(aotpack_module_call, features) == 104);
// The first version 2 had 112 bytes.
static_assert(offsetof(aotpack_module_call, tuning) == 112);
static_assert(offsetof(aotpack_module_call, team) == 120);

static_assert(sizeof(aotpack_module_team) == 32);
static_assert(offsetof(aotpack_module_team, struct_size) == 0);
static_assert(offsetof(aotpack_module_team, state) == 8);
static_assert(offsetof(aotpack_module_team, run) == 16);
static_assert(offsetof(aotpack_module_team, meet) == 24);

static_assert(sizeof(aotpack_module_choice) == 16);
static_assert(offsetof(aotpack_module_choice, site) == 0);
static_assert(offsetof(aotpack_module_choice, choice) == 8);
static_assert(offsetof(aotpack_module_choice, reserved) == 12);

static_assert(sizeof(aotpack_module_site) == 56);
static_assert(offsetof(aotpack_module_site, struct_size) == 0);
static_assert(offsetof(aotpack_module_site, site) == 8);
static_assert(offsetof(aotpack_module_site, kernel) == 16);
static_assert(offsetof(aotpack_module_site, numbers) == 24);
static_assert(offsetof(aotpack_module_site, num_numbers) == 32);
static_assert(offsetof(aotpack_module_site, choice) == 36);
static_assert(offsetof(aotpack_module_site, positions) == 40);
static_assert(offsetof(aotpack_module_site, nanoseconds) == 48);

static_assert(sizeof(aotpack_module_tuning) == 40);
static_assert(offsetof(aotpack_module_tuning, struct_size) == 0);
static_assert(offsetof(aotpack_module_tuning, choices) == 8);
static_assert(offsetof(aotpack_module_tuning, num_choices) == 16);
static_assert(offsetof(aotpack_module_tuning, record) == 24);
static_assert(offsetof(aotpack_module_tuning, recorder) == 32);

static_assert(sizeof(aotpack_module) == 72);
static_assert(offsetof(aotpack_module, abi_version) == 0);
static_assert(offsetof(aotpack_module, struct_size) == 4);
static_assert(offsetof(aotpack_module, target) == 8);
static_assert(offsetof(aotpack_module, num_inputs) == 16);
static_assert(offsetof(aotpack_module, num_outputs) == 20);
static_assert(offsetof(aotpack_module, num_constants) == 24);
static_assert(offsetof(aotpack_module, num_imports) == 28);
static_assert(offsetof(aotpack_module, import_names) == 32);
static_assert(offsetof(aotpack_module, run) == 40);
// All of version 1, of 48 bytes.
static_assert(offsetof(aotpack_module, features) == 48);
static_assert(offsetof(aotpack_module, num_assets) == 56);
static_assert(offsetof(aotpack_module, reserved) == 60);
static_assert(offsetof(aotpack_module, asset_names) == 64);

// Structs that can grow: the sizes are those of the first version 3, and of what was added to it.
static_assert(sizeof(DLDevice) == 8);
static_assert(sizeof(aotpack_load_options) == 48);
static_assert(offsetof(aotpack_load_options, struct_size) == 0);
static_assert(offsetof(aotpack_load_options, verify) == 8);
static_assert(offsetof(aotpack_load_options, mode) == 12);
static_assert(offsetof(aotpack_load_options, device) == 16);
static_assert(offsetof(aotpack_load_options, graphs) == 24);
static_assert(offsetof(aotpack_load_options, provider_path) == 32);
static_assert(offsetof(aotpack_load_options, prefetch) == 40);
static_assert(sizeof(aotpack_context_options) == 32);
static_assert(offsetof(aotpack_context_options, struct_size) == 0);
static_assert(offsetof(aotpack_context_options, num_threads) == 8);
// The first version 3 had 16 bytes.
static_assert(offsetof(aotpack_context_options, reserved) == 12);
static_assert(offsetof(aotpack_context_options, cpus) == 16);
static_assert(offsetof(aotpack_context_options, cpu_count) == 24);
static_assert(sizeof(aotpack_dim_info) == 72);
static_assert(offsetof(aotpack_dim_info, struct_size) == 0);
static_assert(offsetof(aotpack_dim_info, name) == 8);
static_assert(offsetof(aotpack_dim_info, size) == 16);
static_assert(offsetof(aotpack_dim_info, multiplier) == 24);
static_assert(offsetof(aotpack_dim_info, offset) == 32);
static_assert(offsetof(aotpack_dim_info, min) == 40);
static_assert(offsetof(aotpack_dim_info, max) == 48);
static_assert(offsetof(aotpack_dim_info, multiple_of) == 56);
static_assert(offsetof(aotpack_dim_info, expression) == 64);
static_assert(sizeof(aotpack_value_info) == 48);
static_assert(offsetof(aotpack_value_info, struct_size) == 0);
static_assert(offsetof(aotpack_value_info, name) == 8);
static_assert(offsetof(aotpack_value_info, dtype) == 16);
static_assert(offsetof(aotpack_value_info, rank) == 20);
static_assert(offsetof(aotpack_value_info, dims) == 24);
static_assert(offsetof(aotpack_value_info, mutated) == 32);
static_assert(offsetof(aotpack_value_info, number) == 36);
static_assert(offsetof(aotpack_value_info, device) == 40);
static_assert(sizeof(aotpack_number) == 4);
static_assert(sizeof(aotpack_profile_event) == 32);
static_assert(offsetof(aotpack_profile_event, struct_size) == 0);
static_assert(offsetof(aotpack_profile_event, step) == 8);
static_assert(offsetof(aotpack_profile_event, kernel) == 12);
static_assert(offsetof(aotpack_profile_event, begin_ns) == 16);
static_assert(offsetof(aotpack_profile_event, end_ns) == 24);
static_assert(sizeof(aotpack_choice) == 16);
static_assert(offsetof(aotpack_choice, site) == 0);
static_assert(offsetof(aotpack_choice, choice) == 8);
static_assert(offsetof(aotpack_choice, reserved) == 12);
static_assert(sizeof(aotpack_site) == 64);
static_assert(offsetof(aotpack_site, struct_size) == 0);
static_assert(offsetof(aotpack_site, site) == 8);
static_assert(offsetof(aotpack_site, kernel) == 16);
static_assert(offsetof(aotpack_site, target) == 24);
static_assert(offsetof(aotpack_site, numbers) == 32);
static_assert(offsetof(aotpack_site, num_numbers) == 40);
static_assert(offsetof(aotpack_site, choice) == 44);
static_assert(offsetof(aotpack_site, positions) == 48);
static_assert(offsetof(aotpack_site, nanoseconds) == 56);
static_assert(sizeof(aotpack_backward_info) == 40);
static_assert(offsetof(aotpack_backward_info, struct_size) == 0);
static_assert(offsetof(aotpack_backward_info, entry) == 8);
static_assert(offsetof(aotpack_backward_info, result_count) == 16);
static_assert(offsetof(aotpack_backward_info, gradient_count) == 24);
static_assert(offsetof(aotpack_backward_info, gradients) == 32);
static_assert(sizeof(aotpack_pipeline_worker) == 40);
static_assert(offsetof(aotpack_pipeline_worker, struct_size) == 0);
static_assert(offsetof(aotpack_pipeline_worker, stage) == 8);
static_assert(offsetof(aotpack_pipeline_worker, cpus) == 16);
static_assert(offsetof(aotpack_pipeline_worker, cpu_count) == 24);
static_assert(offsetof(aotpack_pipeline_worker, num_threads) == 32);
static_assert(offsetof(aotpack_pipeline_worker, reserved) == 36);
static_assert(sizeof(aotpack_pipeline_options) == 56);
static_assert(offsetof(aotpack_pipeline_options, struct_size) == 0);
static_assert(offsetof(aotpack_pipeline_options, entry) == 8);
static_assert(offsetof(aotpack_pipeline_options, workers) == 16);
static_assert(offsetof(aotpack_pipeline_options, worker_count) == 24);
static_assert(offsetof(aotpack_pipeline_options, max_in_flight) == 32);
static_assert(offsetof(aotpack_pipeline_options, seed) == 40);
static_assert(offsetof(aotpack_pipeline_options, seeded) == 48);
static_assert(sizeof(aotpack_weight_info) == 40);
static_assert(offsetof(aotpack_weight_info, struct_size) == 0);
static_assert(offsetof(aotpack_weight_info, name) == 8);
static_assert(offsetof(aotpack_weight_info, dtype) == 16);
static_assert(offsetof(aotpack_weight_info, rank) == 20);
static_assert(offsetof(aotpack_weight_info, sizes) == 24);
static_assert(offsetof(aotpack_weight_info, device) == 32);
static_assert(sizeof(aotpack_weight_delta) == 40);
static_assert(offsetof(aotpack_weight_delta, struct_size) == 0);
static_assert(offsetof(aotpack_weight_delta, name) == 8);
static_assert(offsetof(aotpack_weight_delta, down) == 16);
static_assert(offsetof(aotpack_weight_delta, up) == 24);
static_assert(offsetof(aotpack_weight_delta, scale) == 32);
static_assert(sizeof(aotpack_update_options) == 40);
static_assert(offsetof(aotpack_update_options, struct_size) == 0);
static_assert(offsetof(aotpack_update_options, num_threads) == 8);
static_assert(offsetof(aotpack_update_options, reserved) == 12);
static_assert(offsetof(aotpack_update_options, flags) == 16);
static_assert(offsetof(aotpack_update_options, deltas) == 24);
static_assert(offsetof(aotpack_update_options, delta_count) == 32);
