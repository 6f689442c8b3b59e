#include "host/cpu_quota.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace aotpack::runtime {
namespace {

// The beginning of a small file; "" when it cannot be read.
std::string read_file(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  text.resize(4096);
  const ssize_t count = ::read(fd, text.data(), text.size());
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  ::close(fd);
  return text;
}

// The number at the beginning of `text`, -1 when there is none.
int64_t take_number(std::string_view* text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc()) return -1;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

// Whole processors; 0: no limit.
int64_t processors(int64_t quota, int64_t period) {
  return quota <= 0 || period <= 0 ? 0 : std::max<int64_t>((quota - 1) / period + 1, 1);
}

int64_t quota_v2(const std::string& folder) {
  const std::string text = read_file(folder + "/cpu.max");  // "max 100000", "150000 100000"
  std::string_view rest = text;
  const int64_t quota = take_number(&rest);
  if (rest.substr(0, 1) == " ") rest.remove_prefix(1);
  return processors(quota, take_number(&rest));
}

int64_t quota_v1(const std::string& folder) {
  const std::string quota = read_file(folder + "/cpu.cfs_quota_us");  // -1: none
  const std::string period = read_file(folder + "/cpu.cfs_period_us");
  std::string_view quota_text = quota;
  std::string_view period_text = period;
  return processors(take_number(&quota_text), take_number(&period_text));
}

// The least of a group and those above it. In a container the path may be that of the host, which is not there: then
// the groups above, at last the root, are the container's own.
template <typename Quota>
void add_limits(const std::string& mount, std::string path, Quota quota, int64_t* least) {
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const int64_t found = quota(mount + path);
    if (found > 0 && (*least == 0 || found < *least)) *least = found;
    if (path.empty()) return;
    path.resize(path.find_last_of('/'));
  }
}

bool has_item(std::string_view list, std::string_view item) {
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == item) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

int32_t cpu_quota(const std::string& groups, const std::string& root) {
  int64_t least = 0;
  const std::string text = read_file(groups);
  std::string_view rest = text;
  while (!rest.empty()) {
    // "0::/a/b" in version 2, "4:cpu,cpuacct:/a/b" in version 1.
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string path(line.substr(second + 1));
    if (controllers.empty()) {
      add_limits(root, path, quota_v2, &least);
      add_limits(root + "/unified", path, quota_v2, &least);  // both versions at once
    } else if (has_item(controllers, "cpu")) {
      for (const std::string& name : {std::string(controllers), std::string("cpu")}) {
        add_limits(root + "/" + name, path, quota_v1, &least);
      }
    }
  }
  return static_cast<int32_t>(std::min<int64_t>(least, INT32_MAX));
}

}  // namespace aotpack::runtime
