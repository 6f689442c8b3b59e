#include "failures.h"

#include "tensor.h"

void aotpack::generated::fail(const char* message) { aotpack::module::throw_invalid(message); }
