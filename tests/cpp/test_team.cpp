// The threads of a call: quotas, limits, forks.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "fixtures.h"
#include "host/cpu_quota.h"
#include "host/cpus.h"
#include "host/process.h"
#include "host/team.h"

using namespace aotpack::tests;
using aotpack::Context;
using aotpack::Model;
using aotpack::runtime::cpu_quota;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // neither forks with threads nor small address spaces
#else
constexpr bool kSanitized = false;
#endif

namespace {

ArchiveWriter archive_of(const char* module_path, int64_t count) {
  ArchiveWriter writer;
  writer.files = {{"modules/x86-64/forward", read_bytes(module_path)}};
  writer.manifest = manifest({}, {entry("forward", {}, {}, {value("threads", "int64", {count})},
                                        {variant("default", {}, {module(0, {}, {"alloc"})})})});
  return writer;
}

// By OpenMP, and by the team of the call.
ArchiveWriter parallel_archive() { return archive_of(MODULE_parallel, 2); }
ArchiveWriter team_archive() { return archive_of(MODULE_team, 5); }

struct Threads {
  int64_t allowed;
  int64_t used;
  bool operator==(const Threads&) const = default;
};

Threads threads_of(Context& context) {
  const auto outputs = context.run({});
  return {outputs[0].data<int64_t>()[0], outputs[0].data<int64_t>()[1]};
}

std::vector<int64_t> team_of(Context& context) {
  const auto outputs = context.run({});
  return {outputs[0].data<int64_t>(), outputs[0].data<int64_t>() + 5};
}

// Runs `body` in the child of a fork; its result, or -1 when it has none after a minute.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(body());
  for (int round = 0; round < 6000; ++round) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

// A folder with files.
class Tree {
 public:
  Tree() {
    char pattern[] = "/tmp/aotpack-groups-XXXXXX";
    root_ = ::mkdtemp(pattern);
  }
  ~Tree() { std::filesystem::remove_all(root_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  void put(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  int quota(const std::string& groups) const {
    put("groups", groups);
    return cpu_quota(root_ + "/groups", root_ + "/fs");
  }

 private:
  std::string root_;
};

}  // namespace

TEST_CASE("quotas of control groups, version 2") {
  const Tree tree;
  CHECK(tree.quota("0::/\n") == 0);
  tree.put("fs/cpu.max", "max 100000\n");
  CHECK(tree.quota("0::/\n") == 0);
  tree.put("fs/a/cpu.max", "400000 100000\n");
  tree.put("fs/a/b/cpu.max", "250000 100000\n");
  tree.put("fs/a/b/c/cpu.max", "max 100000\n");
  CHECK(tree.quota("0::/a\n") == 4);
  CHECK(tree.quota("0::/a/b\n") == 3);
  CHECK(tree.quota("0::/a/b/c\n") == 3);
  CHECK(tree.quota("0::/a/x/y\n") == 4);  // the host's path in a container
  CHECK(tree.quota("0::/z\n") == 0);
  tree.put("fs/cpu.max", "1000 100000\n");
  CHECK(tree.quota("0::/a/b/c") == 1);
  for (const char* text : {"", "\n", "0", "0::", "0::a", "::", ":::::\n", "1:cpu\n", "max", "0::/a/b\n0::/a/b\n"}) {
    CHECK_NOTHROW(tree.quota(text));
  }
  for (const char* text : {"", "max", "x", "100000", "100000 ", "100000 0", "0 100000", "-5 100000", "100000 -1",
                           "99999999999999999999 100000"}) {
    tree.put("fs/cpu.max", text);
    CHECK(tree.quota("0::/\n") == 0);
  }
}

TEST_CASE("quotas of control groups, version 1 and both") {
  const Tree tree;
  tree.put("fs/cpu,cpuacct/pod/cpu.cfs_quota_us", "150000\n");
  tree.put("fs/cpu,cpuacct/pod/cpu.cfs_period_us", "100000\n");
  tree.put("fs/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  tree.put("fs/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(tree.quota("3:memory:/pod\n4:cpu,cpuacct:/pod/x\n") == 2);
  CHECK(tree.quota("4:cpuset:/pod\n") == 0);
  CHECK(tree.quota("4:cpu,cpuacct:/\n") == 0);
  tree.put("fs/cpu/cpu.cfs_quota_us", "100000\n");
  tree.put("fs/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(tree.quota("4:cpu:/docker/host\n") == 1);
  tree.put("fs/unified/u/cpu.max", "300000 100000");
  CHECK(tree.quota("4:cpu,cpuacct:/other\n0::/u\n") == 1);
  CHECK(tree.quota("4:cpuset:/\n0::/u\n") == 3);
  CHECK(aotpack::runtime::usable_cores() >= 1);
}

TEST_CASE("a context has the threads that it was made with") {
  const TempFile file(parallel_archive());
  const Model model = Model::load(file.path());
  for (const int count : {1, 2, 4, 3, 1, 4}) {
    Context context(model, count);
    CHECK(context.num_threads() == count);
    CHECK(threads_of(context) == Threads{count, count});
  }
}

TEST_CASE("a call shares its regions among the threads of the context") {
  const TempFile file(team_archive());
  const Model model = Model::load(file.path());
  const auto cpus = aotpack::runtime::cpus_of_thread();
  for (const int count : {1, 2, 4, 3, 1, 4}) {
    Context context(model, count);
    CHECK(team_of(context) == std::vector<int64_t>{count, count, count * (count - 1) / 2, cpus.front(), cpus.back()});
  }
  // Several threads at once, each with a team.
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      Context context(model, 3);
      for (int round = 0; round < 20; ++round) CHECK(team_of(context)[1] == 3);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("a context on chosen CPUs") {
  const TempFile file(team_archive());
  const Model model = Model::load(file.path());
  const auto cpus = aotpack::runtime::cpus_of_thread();
  for (const int32_t cpu : {cpus.front(), cpus.back()}) {
    Context context(model, 3, {cpu, cpu});
    CHECK(context.num_threads() == 3);
    CHECK(team_of(context) == std::vector<int64_t>{3, 3, 3, cpu, cpu});
    CHECK(aotpack::runtime::cpus_of_thread() == cpus);
    // On another thread, too.
    std::thread([&] { CHECK(team_of(context) == std::vector<int64_t>{3, 3, 3, cpu, cpu}); }).join();
    Context as_many(model, 0, {cpu});
    CHECK(as_many.num_threads() == 1);
    CHECK(team_of(as_many) == std::vector<int64_t>{1, 1, 0, cpu, cpu});
  }
  for (const std::vector<int32_t>& wrong : {std::vector<int32_t>{-1}, {cpus.front(), 65000}, {1 << 30}}) {
    CHECK_THROWS_WITH_AS(Context(model, 2, wrong), doctest::Contains("cannot run on the CPUs"), aotpack::Error);
    CHECK(aotpack::runtime::cpus_of_thread() == cpus);
  }
  // Of a caller that knows no CPUs.
  aotpack_context_options options{};
  options.struct_size = offsetof(aotpack_context_options, reserved);
  options.cpu_count = 77;
  aotpack_context* context = nullptr;
  REQUIRE(aotpack_context_create(model.handle(), &options, &context) == nullptr);
  aotpack_context_release(context);
  options.struct_size = sizeof options;
  aotpack_status* status = aotpack_context_create(model.handle(), &options, &context);
  CHECK(std::string(aotpack_status_message(status)) == "aotpack_context_options.cpus is NULL");
  aotpack_status_release(status);
}

TEST_CASE("creatable_threads counts") {
  CHECK(aotpack::runtime::creatable_threads(0) == 0);
  CHECK(aotpack::runtime::creatable_threads(-1) == 0);
  CHECK(aotpack::runtime::creatable_threads(5) == 5);
}

TEST_CASE("calls in the child of a fork" * doctest::skip(kSanitized)) {
  const TempFile file(parallel_archive());
  const Model model = Model::load(file.path());
  Context context(model, 4);
  // Nothing parallel yet on this thread: the child has all threads.
  std::thread([&] {
    CHECK(in_child([&] {
            Context own(model, 4);
            return threads_of(own) == Threads{4, 4} && threads_of(own) == Threads{4, 4} ? 0 : 1;
          }) == 0);
  }).join();
  CHECK(threads_of(context) == Threads{4, 4});
  // From here on libgomp has threads that no child has.
  const auto calls = [&] {
    const bool here = threads_of(context) == Threads{1, 1} && threads_of(context) == Threads{1, 1};
    bool beside = false;
    std::thread([&] { beside = threads_of(context) == Threads{4, 4}; }).join();
    return here && beside ? 0 : 1;
  };
  CHECK(in_child(calls) == 0);
  CHECK(in_child([&] { return in_child(calls); }) == 0);
  CHECK(threads_of(context) == Threads{4, 4});  // the parent is as it was
}

TEST_CASE("fewer threads than were asked for, where the system has no more" * doctest::skip(kSanitized)) {
  const TempFile file(parallel_archive());
  const Model model = Model::load(file.path());
  CHECK(in_child([&] {
          // Room for some stacks of a thread, of 8 MB, not for 300.
          std::ifstream statm("/proc/self/statm");
          rlim_t pages = 0;
          statm >> pages;
          rlimit limit{};
          ::getrlimit(RLIMIT_AS, &limit);
          limit.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{400} << 20);
          if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
          int result = 0;
          std::thread([&] {
            Context context(model, 300);
            const Threads threads = threads_of(context);
            const bool fits = context.num_threads() < 300 && threads.allowed == threads.used &&
                              threads.used <= context.num_threads() && threads.used >= 1;
            result = fits && threads_of(context) == threads ? 0 : 1;
          }).join();
          return result;
        }) == 0);
}
