// JSON trees of archives: building them tersely, and changing them at random.
#pragma once

#include <cstdint>
#include <vector>

#include "archive_writer.h"

namespace aotpack::fuzz {

using Json = tests::Json;

inline Json list(std::vector<Json> items) { return Json::array(std::move(items)); }
inline Json object(Json::Members members) { return Json::object(std::move(members)); }

// A code of random items, most of them fitting their stack.
Json random_code();

// Changes one place of a manifest: a leaf, a list, an object, a code or a shape.
void mutate(Json& root);

}  // namespace aotpack::fuzz
