#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include "hal/cpu/tile_permission.h"

int main(int count, char** arguments) {
  aotpack::runtime::request_tiles();  // kernels for them are only tested where there are some
  return doctest::Context(count, arguments).run();
}
