#include "json_tree.h"

#include <iterator>
#include <string>
#include <utility>

#include "choices.h"

namespace aotpack::fuzz {
namespace {

const char* const kNumbers[] = {"0", "1", "-1", "2", "3", "4", "7", "8", "15", "16", "17", "63", "64", "255", "4095",
                                "4096", "65535", "2147483647", "2147483648", "4294967295", "4294967296",
                                "4611686018427387904", "-4611686018427387904", "-4611686018427387905",
                                "9223372036854775807", "-9223372036854775808", "9223372036854775806", "3037000500",
                                "1099511627776", "70368744177664",
                                // No integers of 64 bits.
                                "9223372036854775808", "1e308", "0.5", "-0", "-0.0"};
constexpr size_t kIntegers = 30;

const char* const kWords[] = {"",
                              "x",
                              "y",
                              "forward",
                              "fold",
                              "alloc",
                              "free",
                              "fail",
                              "seed",
                              "float32",
                              "int64",
                              "bool",
                              "int8",
                              "complex128",
                              "float64",
                              "int",
                              "float",
                              "tensor",
                              "tuple",
                              "list",
                              "dict",
                              "value",
                              "call",
                              "default",
                              "x86-64",
                              "x86-64-v2",
                              "x86-64-v3",
                              "x86-64-v4",
                              "b",
                              "l",
                              "n",
                              "m",
                              "c",
                              "h",
                              "+",
                              "-",
                              "*",
                              "//",
                              "%",
                              "**",
                              "min",
                              "max",
                              "neg",
                              "abs",
                              "/",
                              "pow",
                              "sqrt",
                              "exp",
                              "log",
                              "trunc",
                              "floor",
                              "ceil",
                              "round",
                              "==",
                              "!=",
                              "<",
                              "<=",
                              "and",
                              "or",
                              "not",
                              "select",
                              "$b",
                              "$l",
                              "$n",
                              "$m",
                              "$c",
                              "$h",
                              "sinh",
                              "tan",
                              "weight",
                              "gain",
                              "packed",
                              "\u00e9\n\"\\",
                              "a\tb"};

const char* const kDims[] = {"b", "l", "n", "m", "c", "h"};
const char* const kDimWords[] = {"$b", "$l", "$n", "$m", "$c", "$h"};

Json integer() { return Json::raw(kNumbers[pick(kIntegers)]); }

Json leaf() {
  switch (pick(8)) {
    case 0:
      return Json();
    case 1:
      return Json(chance(50));
    case 2:
    case 3:
    case 4:
      return Json::raw(one_of(kNumbers));
    case 5:
      return object({{"float", Json::raw(one_of(kNumbers))}});
    default:
      return Json(one_of(kWords));
  }
}

void collect(Json& from, std::vector<Json*>& into) {
  into.push_back(&from);
  if (from.is_array()) {
    for (Json& item : from.items()) {
      collect(item, into);
    }
  }
  if (from.is_object()) {
    for (auto& [key, value] : from.members()) {
      collect(value, into);
    }
  }
}

template <class Wanted>
Json* search(const std::vector<Json*>& nodes, Wanted wanted) {
  for (int attempt = 0; attempt < 40; ++attempt) {
    Json* node = nodes[pick(nodes.size())];
    if (wanted(*node)) {
      return node;
    }
  }
  return nullptr;
}

Json* with_key(const std::vector<Json*>& nodes, const char* key) {
  std::vector<Json*> found;
  for (Json* node : nodes) {
    if (node->is_object() && node->members().count(key) != 0) {
      found.push_back(node);
    }
  }
  return found.empty() ? nullptr : found[pick(found.size())];
}

void change_list(std::vector<Json>& items) {
  const auto place = [&](size_t size) { return items.begin() + static_cast<std::ptrdiff_t>(pick(size)); };
  if (items.empty() || chance(20)) {
    items.push_back(leaf());
    return;
  }
  const Json copy = items[pick(items.size())];
  switch (pick(4)) {
    case 0:
      items.erase(place(items.size()));
      break;
    case 1:
      items.insert(place(items.size() + 1), copy);
      break;
    case 2:
      std::swap(items[pick(items.size())], items[pick(items.size())]);
      break;
    default:
      items.insert(items.end(), pick(40), copy);
  }
}

void change_object(Json::Members& members) {
  auto at = members.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(pick(members.size())));
  if (chance(30)) {
    members.erase(at);
  } else {
    at->second = leaf();
  }
}

void change_shape(Json& value) {
  Json shape = list({}), order = list({}), stride = list({});
  const size_t rank = chance(10) ? pick(18) : pick(5);
  for (size_t i = 0; i < rank; ++i) {
    if (chance(50)) {
      shape.push(integer());
    } else if (chance(70)) {
      const int64_t mul = chance(50) ? 1 : static_cast<int64_t>(pick(5));
      const int64_t add = chance(60) ? 0 : static_cast<int64_t>(pick(9)) - 4;
      shape.push(object({{"dim", one_of(kDims)}, {"mul", mul}, {"add", add}}));
    } else {
      shape.push(object({{"expr", "e"}, {"code", random_code()}}));
    }
    order.push(static_cast<int64_t>(i));
    stride.push(integer());
  }
  for (size_t i = 1; i < rank; ++i) {
    if (chance(40)) {
      std::swap(order[i], order[pick(i)]);
    }
  }
  value["shape"] = shape;
  for (auto& [key, changed] : {std::pair<const char*, Json&>{"order", order}, {"stride", stride}}) {
    if (value.members().count(key) != 0) {
      value[key] = changed;
    }
  }
}

// Types on the stack of a code: i, f or b.
bool apply_two(Json& code, std::string& stack) {
  static const char* const ints[] = {"+", "-", "*", "//", "%", "**", "min", "max", "==", "!=", "<", "<="};
  static const char* const floats[] = {"+", "-", "*", "/", "pow", "min", "max", "==", "!=", "<", "<="};
  static const char* const bools[] = {"and", "or", "==", "!="};
  if (stack.size() < 2 || stack.back() != stack[stack.size() - 2]) {
    return false;
  }
  const char type = stack.back();
  stack.pop_back();
  if (type == 'b') {
    code.push(one_of(bools));
    return true;
  }
  const size_t count = type == 'i' ? std::size(ints) : std::size(floats);
  const size_t chosen = pick(count);
  code.push(type == 'i' ? ints[chosen] : floats[chosen]);
  stack.back() = chosen >= count - 4 ? 'b' : type;
  return true;
}

void apply_one(Json& code, std::string& stack) {
  static const char* const ints[] = {"neg", "abs", "float"};
  static const char* const floats[] = {"neg",  "abs",  "sqrt", "exp",  "log",  "log2",  "sin",   "cos",  "tan",  "asin",
                                       "acos", "atan", "sinh", "cosh", "tanh", "trunc", "floor", "ceil", "round"};
  if (stack.back() == 'i') {
    const size_t chosen = pick(std::size(ints));
    code.push(ints[chosen]);
    stack.back() = chosen == 2 ? 'f' : 'i';
  } else if (stack.back() == 'f') {
    const size_t chosen = pick(std::size(floats));
    code.push(floats[chosen]);
    stack.back() = chosen >= 15 ? 'i' : 'f';
  } else {
    code.push("not");
  }
}

void push(Json& code, std::string& stack) {
  switch (pick(4)) {
    case 0:
      code.push(integer());
      stack += 'i';
      break;
    case 1:
      code.push(one_of(kDimWords));
      stack += 'i';
      break;
    case 2:
      code.push(object({{"float", Json::raw(chance(50) ? "0.5" : "-2.5")}}));
      stack += 'f';
      break;
    default:
      code.push(Json(chance(50)));
      stack += 'b';
  }
}

}  // namespace

Json random_code() {
  Json code = list({});
  std::string stack;
  const size_t length = 1 + pick(30);
  for (size_t i = 0; i < length; ++i) {
    const size_t depth = stack.size();
    if (chance(45) && apply_two(code, stack)) {
      continue;
    }
    if (depth >= 3 && chance(20) && stack[depth - 3] == 'b' && stack[depth - 2] == stack[depth - 1]) {
      code.push("select");
      stack.replace(depth - 3, 3, 1, stack.back());
    } else if (depth > 0 && chance(30)) {
      apply_one(code, stack);
    } else {
      push(code, stack);
    }
  }
  // Down to one value.
  while (stack.size() > 1 && apply_two(code, stack)) {
  }
  return code;
}

void mutate(Json& root) {
  std::vector<Json*> nodes;
  collect(root, nodes);
  Json* node = nullptr;
  switch (pick(10)) {
    case 0:
    case 1:
    case 2:
      node = search(nodes, [](Json& j) { return !j.is_array() && !j.is_object(); });
      if (node != nullptr) {
        *node = leaf();
      }
      break;
    case 3: {
      const Json copy = *nodes[pick(nodes.size())];
      *nodes[pick(nodes.size())] = copy;
      break;
    }
    case 4:
    case 5:
      node = search(nodes, [](Json& j) { return j.is_array(); });
      if (node != nullptr) {
        change_list(node->items());
      }
      break;
    case 6:
      node = search(nodes, [](Json& j) { return j.is_object() && !j.members().empty(); });
      if (node != nullptr) {
        change_object(node->members());
      }
      break;
    case 7:
    case 8:
      node = with_key(nodes, "code");
      if (node != nullptr) {
        (*node)["code"] = random_code();
      }
      break;
    default:
      node = with_key(nodes, "shape");
      if (node != nullptr) {
        change_shape(*node);
      }
  }
}

}  // namespace aotpack::fuzz
