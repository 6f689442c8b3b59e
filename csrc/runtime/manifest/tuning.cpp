#include "manifest/tuning.h"

#include <charconv>
#include <limits>
#include <set>
#include <tuple>

#include "base/status.h"
#include "manifest/json.h"
#include "manifest/node.h"

namespace aotpack::runtime {
namespace {

constexpr size_t kDigits = 16;

uint64_t read_site(const Node& node) {
  const std::string_view text = node.string();
  uint64_t site = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), site, 16);
  const bool is_lower = text.find_first_of("ABCDEF") == std::string_view::npos;
  if (error != std::errc() || end != text.data() + text.size() || text.size() != kDigits || !is_lower) {
    node.error("is not 16 lowercase hex digits");
  }
  return site;
}

TuningRecord read_record(const Node& node) {
  node.keys({"choices", "processor", "target", "threads"});
  TuningRecord record;
  record.target = node.at("target").name();
  record.processor = node.at("processor").name();
  record.threads = static_cast<int32_t>(node.at("threads").integer(1, std::numeric_limits<int32_t>::max()));
  const Node choices = node.at("choices");
  for (size_t i = 0; i < choices.size(); ++i) {
    const Node each = choices.at(i);
    each.keys({"choice", "kernel", "numbers", "site", "speedup"});
    each.at("kernel").name();
    const Node numbers = each.at("numbers");
    for (size_t j = 0; j < numbers.size(); ++j) numbers.at(j).integer();
    each.at("speedup").number();
    const uint64_t site = read_site(each.at("site"));
    if (!record.choices.empty() && record.choices.back().site >= site) each.error("is not in ascending order");
    const auto choice = each.at("choice").integer(0, std::numeric_limits<uint32_t>::max());
    record.choices.push_back({site, static_cast<uint32_t>(choice), 0});
  }
  return record;
}

}  // namespace

std::vector<TuningRecord> parse_tuning(std::string_view text) {
  const json::Document document(text);
  const Node root(document.root());
  root.keys({"tuning"});
  const Node list = root.at("tuning");
  std::vector<TuningRecord> records;
  std::set<std::tuple<std::string, std::string, int32_t>> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    records.push_back(read_record(list.at(i)));
    const TuningRecord& record = records.back();
    if (!seen.emplace(record.target, record.processor, record.threads).second) {
      list.at(i).error("is there twice: the same target, processor and threads");
    }
  }
  return records;
}

}  // namespace aotpack::runtime
