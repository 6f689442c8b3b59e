// The C interface where callers misuse it.
#include <doctest/doctest.h>

#include <cstring>

#include "fixtures.h"

using namespace aotpack::tests;

namespace {

std::string take(aotpack_status* status, aotpack_code code) {
  CHECK(aotpack_status_code(status) == code);
  const std::string message = aotpack_status_message(status);
  aotpack_status_release(status);
  return message;
}

}  // namespace

TEST_CASE("versions, names of codes, NULL statuses") {
  CHECK(aotpack_abi_version() == AOTPACK_ABI_VERSION);
  CHECK(std::string(aotpack_version()) == AOTPACK_VERSION_STRING);
  CHECK(std::string(aotpack_code_name(AOTPACK_OK)) == "OK");
  CHECK(std::string(aotpack_code_name(AOTPACK_INTERNAL)) == "INTERNAL");
  CHECK(std::string(aotpack_code_name(AOTPACK_EXECUTION_FAILED)) == "EXECUTION_FAILED");
  CHECK(std::string(aotpack_code_name(AOTPACK_DEVICE_FAILED)) == "DEVICE_FAILED");
  CHECK(std::string(aotpack_code_name(AOTPACK_MISSING_WEIGHTS)) == "MISSING_WEIGHTS");
  CHECK(std::string(aotpack_code_name(AOTPACK_CANCELLED)) == "CANCELLED");
  CHECK(std::string(aotpack_code_name(static_cast<aotpack_code>(17))) == "UNKNOWN");
  CHECK(aotpack_status_code(nullptr) == AOTPACK_OK);
  CHECK(std::string(aotpack_status_message(nullptr)).empty());
  aotpack_status_release(nullptr);
  aotpack_model_release(nullptr);
  aotpack_model_retain(nullptr);
  aotpack_context_release(nullptr);
}

TEST_CASE("NULL arguments are refused or give nothing") {
  const TempFile file(affine_archive());
  aotpack_model* model = reinterpret_cast<aotpack_model*>(1);
  CHECK(take(aotpack_model_load(nullptr, nullptr, &model), AOTPACK_INVALID_ARGUMENT) == "path is NULL");
  CHECK(model == nullptr);
  CHECK(take(aotpack_model_load(file.path().c_str(), nullptr, nullptr), AOTPACK_INVALID_ARGUMENT) ==
        "out_model is NULL");
  aotpack_load_options options = {};
  take(aotpack_model_load(file.path().c_str(), &options, &model), AOTPACK_INVALID_ARGUMENT);
  options.struct_size = sizeof options;
  const unsigned seven = 7;
  std::memcpy(&options.verify, &seven, sizeof seven);
  take(aotpack_model_load(file.path().c_str(), &options, &model), AOTPACK_INVALID_ARGUMENT);
  REQUIRE(aotpack_model_load(file.path().c_str(), nullptr, &model) == nullptr);

  CHECK(aotpack_model_entry_count(nullptr) == 0);
  CHECK(aotpack_model_entry_name(model, 1) == nullptr);
  CHECK(aotpack_model_entry_target(model, 1) == nullptr);
  CHECK(aotpack_model_variant_target(model, 0, 1) == nullptr);
  CHECK(aotpack_model_variant_target(model, 1, 0) == nullptr);
  CHECK(aotpack_model_variant_target(nullptr, 0, 0) == nullptr);
  CHECK(aotpack_model_input_count(model, 1) == 0);
  CHECK(aotpack_model_output_count(nullptr, 0) == 0);
  CHECK(aotpack_model_input(model, 0, 1) == nullptr);
  CHECK(aotpack_model_output(model, 1, 0) == nullptr);
  size_t length = 1;
  CHECK(std::string(aotpack_model_manifest(nullptr, &length)).empty());
  CHECK(length == 0);
  CHECK(aotpack_model_manifest(model, nullptr)[0] == '{');
  size_t entry = 0;
  take(aotpack_model_find_entry(nullptr, "forward", &entry), AOTPACK_INVALID_ARGUMENT);
  take(aotpack_model_find_entry(model, nullptr, &entry), AOTPACK_INVALID_ARGUMENT);
  take(aotpack_model_find_entry(model, "forward", nullptr), AOTPACK_INVALID_ARGUMENT);
  take(aotpack_model_find_entry(model, "none", &entry), AOTPACK_NOT_FOUND);

  aotpack_context* context = reinterpret_cast<aotpack_context*>(1);
  take(aotpack_context_create(nullptr, nullptr, &context), AOTPACK_INVALID_ARGUMENT);
  CHECK(context == nullptr);
  take(aotpack_context_create(model, nullptr, nullptr), AOTPACK_INVALID_ARGUMENT);
  aotpack_context_options context_options = {4, 1, 0, nullptr, 0};
  take(aotpack_context_create(model, &context_options, &context), AOTPACK_INVALID_ARGUMENT);
  context_options = {sizeof context_options, -3, 0, nullptr, 0};
  take(aotpack_context_create(model, &context_options, &context), AOTPACK_INVALID_ARGUMENT);
  REQUIRE(aotpack_context_create(model, nullptr, &context) == nullptr);
  aotpack_model_release(model);  // the context keeps it

  CHECK(aotpack_context_num_threads(nullptr) == 0);
  take(aotpack_context_set_num_threads(nullptr, 1), AOTPACK_INVALID_ARGUMENT);
  aotpack_context_set_seed(nullptr, 1);
  DLManagedTensorVersioned* outputs[3] = {};
  const float x[4] = {};
  const aotpack::TensorView view(x, {1, 4});
  const DLTensor tensor = view.dl();
  const DLTensor* inputs[1] = {&tensor};
  take(aotpack_context_run(nullptr, 0, inputs, 1, outputs, 1), AOTPACK_INVALID_ARGUMENT);
  CHECK(take(aotpack_context_run(context, 1, inputs, 1, outputs, 1), AOTPACK_INVALID_ARGUMENT) ==
        "there is no entry 1; the model has 1");
  CHECK(take(aotpack_context_run(context, 0, nullptr, 1, outputs, 1), AOTPACK_INVALID_ARGUMENT) == "inputs is NULL");
  CHECK(take(aotpack_context_run(context, 0, inputs, 1, nullptr, 1), AOTPACK_INVALID_ARGUMENT) ==
        "out_outputs is NULL");
  outputs[2] = reinterpret_cast<DLManagedTensorVersioned*>(1);
  take(aotpack_context_run(context, 0, inputs, 1, outputs, 3), AOTPACK_INVALID_ARGUMENT);
  CHECK(outputs[2] == nullptr);
  take(aotpack_context_run_into(context, 0, inputs, 1, nullptr, 1), AOTPACK_INVALID_ARGUMENT);
  take(aotpack_context_run_into(nullptr, 0, inputs, 1, nullptr, 1), AOTPACK_INVALID_ARGUMENT);
  const DLTensor* none[1] = {nullptr};
  CHECK(take(aotpack_context_run_into(context, 0, inputs, 1, none, 1), AOTPACK_INVALID_ARGUMENT) ==
        "output 'output' is missing");
  REQUIRE(aotpack_context_run(context, 0, inputs, 1, outputs, 1) == nullptr);
  CHECK(outputs[0]->version.major == 1);
  CHECK(outputs[0]->flags == 0);
  CHECK(outputs[0]->dl_tensor.device.device_type == kDLCPU);
  outputs[0]->deleter(outputs[0]);
  aotpack_context_release(context);
}

TEST_CASE("weights and state: NULL arguments, options, indices") {
  const TempFile file(updatable_archive());
  aotpack_model* model = nullptr;
  REQUIRE(aotpack_model_load(file.path().c_str(), nullptr, &model) == nullptr);
  aotpack_context* context = nullptr;
  REQUIRE(aotpack_context_create(model, nullptr, &context) == nullptr);

  CHECK_FALSE(aotpack_model_is_updatable(nullptr));
  CHECK(aotpack_model_weight_count(nullptr) == 0);
  CHECK(aotpack_model_weight(nullptr, 0) == nullptr);
  CHECK(aotpack_model_weight_generation(nullptr) == 0);
  CHECK(aotpack_model_state_count(nullptr) == 0);
  CHECK(aotpack_model_state(nullptr, 0) == nullptr);
  take(aotpack_model_reset_weights(nullptr), AOTPACK_INVALID_ARGUMENT);
  take(aotpack_context_reset(nullptr), AOTPACK_INVALID_ARGUMENT);
  take(aotpack_context_load_state(nullptr, nullptr, nullptr, 0), AOTPACK_INVALID_ARGUMENT);
  take(aotpack_context_get_state(context, 0, nullptr), AOTPACK_INVALID_ARGUMENT);
  auto* tensor = reinterpret_cast<DLManagedTensorVersioned*>(1);
  take(aotpack_context_get_state(nullptr, 0, &tensor), AOTPACK_INVALID_ARGUMENT);
  CHECK(tensor == nullptr);

  const char* name = "weight";
  const DLTensor* none = nullptr;
  take(aotpack_model_update_weights(nullptr, &name, &none, 1, nullptr), AOTPACK_INVALID_ARGUMENT);
  CHECK(take(aotpack_model_update_weights(model, nullptr, &none, 1, nullptr), AOTPACK_INVALID_ARGUMENT) ==
        "names is NULL");
  CHECK(take(aotpack_context_load_state(context, &name, nullptr, 1), AOTPACK_INVALID_ARGUMENT) == "tensors is NULL");
  aotpack_update_options options{};
  options.struct_size = 4;
  CHECK(take(aotpack_model_update_weights(model, &name, &none, 1, &options), AOTPACK_INVALID_ARGUMENT) ==
        "aotpack_update_options.struct_size is not set");
  options.struct_size = sizeof options;
  options.num_threads = 5000;
  CHECK(take(aotpack_model_update_weights(model, &name, &none, 1, &options), AOTPACK_INVALID_ARGUMENT) ==
        "num_threads must be in [0, 4096]");
  aotpack_context_release(context);
  aotpack_model_release(model);
}
