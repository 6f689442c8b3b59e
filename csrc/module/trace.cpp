#include "trace.h"

#if defined(AOTPACK_TRACE)

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

namespace aotpack::module {
namespace {

void add_list(std::string* line, const char* name, const int64_t* values, int32_t count) {
  *line += std::string(", \"") + name + "\": [";
  for (int32_t i = 0; i < count; ++i) *line += (i == 0 ? "" : ", ") + std::to_string(values[i]);
  *line += "]";
}

}  // namespace

Trace::Trace(const char* op) : line_(std::string("{\"op\": \"") + op + "\", \"tensors\": [") {}

void Trace::add(const char* role, const Tensor* tensor, bool relaid) {
  line_ +=
      std::string(first_ ? "" : ", ") + "{\"role\": \"" + role + "\", \"dtype\": \"" + dtype_name(tensor->dtype) + "\"";
  add_list(&line_, "sizes", tensor->sizes, tensor->rank);
  add_list(&line_, "strides", tensor->strides, tensor->rank);
  line_ += std::string(", \"relaid\": ") + (relaid ? "1}" : "0}");
  first_ = false;
}

Trace::~Trace() {
  const char* path = std::getenv("AOTPACK_TRACE_FILE");
  if (path == nullptr || *path == '\0') return;
  line_ += "]}\n";
  // Appended by one write, so that lines of threads and processes do not mix.
  const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, line_.data(), line_.size());
  close(file);
}

}  // namespace aotpack::module

#endif
