#include "call_plan.h"

#include <charconv>
#include <string>

namespace aotpack::python {
namespace {

// Walks JSON that the runtime has already found to be valid and canonical: no white space, objects with sorted keys.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  // The next string, raw. `plain` says whether it is free of escapes.
  std::string_view string(bool* plain) {
    *plain = true;
    take('"');
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_[at_] == '\\') {
        *plain = false;
        ++at_;
      }
      ++at_;
    }
    std::string_view result = text_.substr(start, at_ - start);
    take('"');
    return result;
  }

  bool integer(int* out) {
    const char* end = text_.data() + text_.size();
    auto [next, error] = std::from_chars(text_.data() + at_, end, *out);
    at_ = static_cast<size_t>(next - text_.data());
    return error == std::errc();
  }

  void skip() {
    if (at_ >= text_.size()) return;
    const char c = text_[at_];
    if (c == '"') {
      bool plain;
      string(&plain);
    } else if (c == '{' || c == '[') {
      skip_nested();
    } else {
      while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}' && text_[at_] != ']') ++at_;
    }
  }

  size_t position() const { return at_; }
  std::string_view since(size_t start) const { return text_.substr(start, at_ - start); }

 private:
  void skip_nested() {
    int depth = 0;
    do {
      const char c = text_[at_];
      if (c == '"') {
        bool plain;
        string(&plain);
        continue;
      }
      depth += (c == '{' || c == '[') - (c == '}' || c == ']');
      ++at_;
    } while (depth > 0 && at_ < text_.size());
  }

  std::string_view text_;
  size_t at_ = 0;
};

// The raw values of an object's members, by key, or of a list's items.
template <typename Visit>
void members(std::string_view object, Visit visit) {
  Cursor cursor(object);
  if (!cursor.take('{')) return;
  while (!cursor.take('}')) {
    bool plain;
    std::string_view key = cursor.string(&plain);
    if (!cursor.take(':')) return;
    const size_t start = cursor.position();
    cursor.skip();
    visit(key, cursor.since(start));
    if (!cursor.take(',') && !cursor.take('}')) return;
    if (cursor.position() == object.size()) return;
  }
}

std::vector<std::string_view> items(std::string_view list) {
  std::vector<std::string_view> result;
  Cursor cursor(list);
  if (!cursor.take('[')) return result;
  while (cursor.position() + 1 < list.size()) {
    const size_t start = cursor.position();
    cursor.skip();
    if (cursor.position() == start) break;
    result.push_back(cursor.since(start));
    cursor.take(',');
  }
  return result;
}

std::string_view member(std::string_view object, std::string_view name) {
  std::string_view result;
  members(object, [&](std::string_view key, std::string_view value) {
    if (key == name) result = value;
  });
  return result;
}

// The index of a leaf {"index":i,"kind":"tensor"}, or -1.
int tensor_index(std::string_view spec) {
  Cursor cursor(spec);
  int index;
  const bool leaf = cursor.take("{\"index\":") && cursor.integer(&index) && cursor.take(",\"kind\":\"tensor\"}");
  return leaf && index >= 0 ? index : -1;
}

bool tensor_indices(std::string_view list, std::vector<int>* out) {
  for (std::string_view item : items(list)) {
    out->push_back(tensor_index(item));
    if (out->back() < 0) return false;
  }
  return true;
}

// An interned string, or null for JSON's null. False when the text has escapes.
bool intern(std::string_view text, PyObject** out) {
  *out = nullptr;
  if (text == "null") return true;
  bool plain;
  std::string_view raw = Cursor(text).string(&plain);
  if (!plain) return false;
  *out = PyUnicode_InternFromString(std::string(raw).c_str());
  return *out != nullptr;
}

bool read_arguments(std::string_view spec, CallPlan* plan) {
  std::string_view kwargs = member(spec, "kwargs");
  std::vector<int> keyword;
  if (!tensor_indices(member(spec, "args"), &plan->positional)) return false;
  if (!tensor_indices(member(kwargs, "items"), &keyword)) return false;
  auto names = items(member(spec, "names"));
  auto keys = items(member(kwargs, "keys"));
  if (names.size() != plan->positional.size() || keys.size() != keyword.size()) return false;
  const size_t count = names.size() + keys.size();
  plan->names.assign(count, nullptr);
  std::vector<bool> seen(count);
  for (size_t i = 0; i < count; ++i) {
    const bool is_keyword = i >= names.size();
    const int index = is_keyword ? keyword[i - names.size()] : plan->positional[i];
    if (static_cast<size_t>(index) >= count || seen[static_cast<size_t>(index)]) return false;
    seen[static_cast<size_t>(index)] = true;
    if (!intern(is_keyword ? keys[i - names.size()] : names[i], &plan->names[static_cast<size_t>(index)])) return false;
  }
  return true;
}

void read_result(std::string_view spec, CallPlan* plan) {
  const int single = tensor_index(spec);
  if (single >= 0) {
    plan->outputs = {single};
    plan->result = CallPlan::Result::kTensor;
    return;
  }
  std::string_view kind = member(spec, "kind");
  if (kind != "\"tuple\"" && kind != "\"list\"" && kind != "\"dict\"") return;
  if (!tensor_indices(member(spec, "items"), &plan->outputs)) return;
  if (kind == "\"dict\"") {
    for (std::string_view key : items(member(spec, "keys"))) {
      PyObject* name;
      if (!intern(key, &name) || !name) return;
      plan->keys.push_back(name);
    }
    if (plan->keys.size() != plan->outputs.size()) return;
  }
  plan->result = kind == "\"tuple\""  ? CallPlan::Result::kTuple
                 : kind == "\"list\"" ? CallPlan::Result::kList
                                      : CallPlan::Result::kDict;
}

}  // namespace

std::vector<CallPlan> read_call_plans(std::string_view manifest) {
  std::vector<CallPlan> plans;
  for (std::string_view entry : items(member(manifest, "entries"))) {
    CallPlan& plan = plans.emplace_back();
    members(entry, [&](std::string_view key, std::string_view value) {
      if (key == "in_spec") plan.plain_arguments = read_arguments(value, &plan);
      if (key == "out_spec") read_result(value, &plan);
    });
  }
  PyErr_Clear();  // a string that could not be interned: left to Python
  return plans;
}

}  // namespace aotpack::python
