// Runs a libFuzzer target without libFuzzer, which only clang has: inputs are pseudo-random bytes. Deterministic for a
// number of runs and a seed.
//
//   fuzz_NAME [--runs N] [--seconds S] [--seed N] [--only RUN]
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

volatile uint64_t current_run = 0;
volatile uint64_t current_seed = 0;

// The run that fails, so that --only repeats it; without anything that a signal handler must not call.
void tell_the_run() {
  char text[96];
  const int length =
      snprintf(text, sizeof text, "\nfailed: --seed %llu --only %llu\n", static_cast<unsigned long long>(current_seed),
               static_cast<unsigned long long>(current_run));
  (void)!write(STDERR_FILENO, text, static_cast<size_t>(length));
}

void on_abort(int number) {
  tell_the_run();
  signal(number, SIG_DFL);
  raise(number);
}

std::vector<uint8_t> input_of(uint64_t seed, uint64_t run) {
  std::mt19937_64 generator(seed * 1000003 + run);
  std::vector<uint8_t> input(16 + generator() % 512);
  for (uint8_t& byte : input) {
    byte = static_cast<uint8_t>(generator());
  }
  return input;
}

}  // namespace

// The sanitizers call it before they end the process.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

int main(int argc, char** argv) {
  uint64_t runs = UINT64_MAX;
  uint64_t seed = 1;
  uint64_t only = 0;
  double seconds = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--runs") {
      runs = strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--seconds") {
      seconds = atof(argv[i + 1]);
    } else if (option == "--seed") {
      seed = strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--only") {
      only = strtoull(argv[i + 1], nullptr, 10);
    } else {
      fprintf(stderr, "unknown option %s\n", argv[i]);
      return 2;
    }
  }
  if (seconds == 0 && runs == UINT64_MAX && only == 0) {
    fprintf(stderr, "one of --runs, --seconds and --only is needed\n");
    return 2;
  }
  signal(SIGABRT, on_abort);
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(tell_the_run);
  }
  current_seed = seed;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  double slowest = 0;
  uint64_t slowest_run = 0;
  uint64_t done = 0;
  for (uint64_t run = only != 0 ? only : 1; done < runs && (seconds == 0 || elapsed() < seconds); ++run, ++done) {
    current_run = run;
    const std::vector<uint8_t> input = input_of(seed, run);
    const double before = elapsed();
    LLVMFuzzerTestOneInput(input.data(), input.size());
    if (elapsed() - before > slowest) {
      slowest = elapsed() - before;
      slowest_run = run;
    }
    if (only != 0) {
      break;
    }
  }
  printf("%s: %llu runs in %.1f s, the slowest %.3f s (--only %llu)\n", argv[0], static_cast<unsigned long long>(done),
         elapsed(), slowest, static_cast<unsigned long long>(slowest_run));
  return 0;
}
