// Text from outside.
#pragma once

#include <cstddef>
#include <string_view>

namespace aotpack::runtime {

// The byte at which a text stops being UTF-8 (RFC 3629: no overlong forms, no surrogates, at most U+10FFFF); its size
// if it never does.
size_t invalid_utf8(std::string_view text) noexcept;

}  // namespace aotpack::runtime
