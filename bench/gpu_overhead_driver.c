/* Measures what a call of a model on a GPU costs the host (bench/gpu_overhead.py compiles and runs this).
 *
 *   gpu_overhead_driver ARCHIVE time          prints "NAME BEST MEDIAN" in microseconds, see below
 *   gpu_overhead_driver ARCHIVE count CALLS   makes calls that do not wait; callgrind counts what is below `measured`
 *
 * submit: calls on a stream of the caller, which return without waiting. A few at a time, so that the stream never
 * fills up; the waits between them are not measured. wait: calls on the context's own stream, each with its wait.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aotpack/aotpack.h"

enum { kRounds = 201, kBatch = 20, kWarm = 64, kMost = 16 };

static void check(aotpack_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", aotpack_status_message(status));
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e6 * (double)time.tv_sec + 1e-3 * (double)time.tv_nsec;
}

static const DLTensor* inputs[kMost];
static size_t num_inputs;
static size_t num_outputs;

/* Zeros on the device, with the least size of each dim. */
static void make_input(aotpack_context* context, const aotpack_value_info* info, size_t index) {
  int64_t shape[64];
  size_t bytes = (size_t)info->dtype.bits / 8;
  for (int32_t axis = 0; axis < info->rank; ++axis) {
    shape[axis] = info->dims[axis]->name != NULL ? info->dims[axis]->min : info->dims[axis]->size;
    bytes *= (size_t)shape[axis];
  }
  DLTensor host = {calloc(bytes + 1, 1), {kDLCPU, 0}, info->rank, info->dtype, shape, NULL, 0};
  DLManagedTensorVersioned* made = NULL;
  check(aotpack_context_to_device(context, &host, &made));
  free(host.data);
  inputs[index] = &made->dl_tensor;
}

/* What callgrind looks for. */
__attribute__((noinline)) void measured(aotpack_context* context, int calls) {
  DLManagedTensorVersioned* outputs[kMost];
  for (int i = 0; i < calls; ++i) {
    check(aotpack_context_run(context, 0, inputs, num_inputs, outputs, num_outputs));
    for (size_t j = 0; j < num_outputs; ++j) outputs[j]->deleter(outputs[j]);
  }
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void report(const char* name, aotpack_context* context, int batch) {
  double times[kRounds];
  measured(context, kWarm);
  for (int round = 0; round < kRounds; ++round) {
    check(aotpack_context_synchronize(context));
    const double start = now();
    measured(context, batch);
    times[round] = (now() - start) / batch;
  }
  qsort(times, kRounds, sizeof *times, compare);
  printf("%s %.3f %.3f\n", name, times[0], times[kRounds / 2]);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  aotpack_load_options options = {.struct_size = sizeof options, .device = {kDLCUDA, 0}};
  aotpack_model* model = NULL;
  aotpack_context* context = NULL;
  check(aotpack_model_load(argv[1], &options, &model));
  check(aotpack_context_create(model, NULL, &context));
  num_inputs = aotpack_model_input_count(model, 0);
  num_outputs = aotpack_model_output_count(model, 0);
  if (num_inputs > kMost || num_outputs > kMost) return 2;
  for (size_t i = 0; i < num_inputs; ++i) make_input(context, aotpack_model_input(model, 0, i), i);
  void* per_thread_stream = (void*)2;
  if (strcmp(argv[2], "count") == 0) {
    check(aotpack_context_set_stream(context, per_thread_stream));
    measured(context, argc > 3 ? atoi(argv[3]) : 1000);
  } else {
    report("wait", context, 1);
    check(aotpack_context_set_stream(context, per_thread_stream));
    report("submit", context, kBatch);
  }
  /* The inputs are left to the end of the process. */
  aotpack_context_release(context);
  aotpack_model_release(model);
  return 0;
}
