"""Which headers a generated wrapper needs: aotpack's own, which have what most wrappers use, or all of the shim's.

The own header (csrc/module/generated/wrapper.h) takes GCC 10 ms to read, the shim's 0.4 s.
"""

from __future__ import annotations

import re

from aotpack.building.native_sources import operator_groups
from aotpack.export.backends.cpp_text import blank_literals

# What a wrapper with the own header begins with.
OWN = '#include "generated/wrapper.h"'

# All that a wrapper with the own header may call, or whose members it may name.
_CALLED = frozenset(
    [
        "AOTI_TORCH_ERROR_CODE_CHECK",
        "AOTInductorModel",
        "AOTPACK_PLACE",
        "CACHE_TORCH_DEVICE",
        "CACHE_TORCH_DTYPE",
        "CACHE_TORCH_LAYOUT",
        "RAIIAtenTensorHandle",
        "aot_inductor",
        "aoti_torch_clone",
        "aoti_torch_copy_",
        "aoti_torch_cpu_view_dtype",
        "aoti_torch_empty_strided",
        "aoti_torch_new_tensor_handle",
        "array",
        "at",
        "cbegin",
        "clear",
        "data_ptr",
        "get",
        "move",
        "reinterpret_tensor_wrapper",
        "release",
        "reset",
        "run_impl",
        "sizes",
        "std",
        "steal_from_raw_handles_to_raii_handles",
        "strides",
        "temporary_reference",
        "torch",
        "wrap_with_raii_handle_if_needed",
    ]
)
# Kernels, and handles of what operators return.
_LOCAL = re.compile(r"cpp_fused\w*|buf\d+")
_CALL = re.compile(r"(?<!\w)([A-Za-z_]\w*)\s*(?=\(|<|::|\{)")
# The own header has none of these, and nothing of the library that would own memory.
_STATEMENT = re.compile(r"\b(?:if|else|for|while|do|switch|goto|throw|try|catch|new|delete|c10)\b")
_AT = re.compile(r"\bat::")
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_STD = re.compile(r"\bstd::")


def has_own_words(wrapper: str) -> bool:
    """Whether the generated part of a wrapper uses no more than the own header has."""
    text = _DIRECTIVE.sub("", blank_literals(wrapper))
    if _STATEMENT.search(text) or _AT.search(text):
        return False
    called = set(_CALL.findall(text)) - _CALLED - operator_groups().keys()
    return all(_LOCAL.fullmatch(word) for word in called)


def with_own_names(wrapper: str) -> str:
    """The wrapper where what headers of the standard library declare is called as the own header does."""
    return _STD.sub("aotpack_std::", wrapper)
