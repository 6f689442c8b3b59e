"""Which headers a generated kernel needs: aotpack's own, which have what most kernels use, or all of torch's.

Own headers (csrc/module/generated) take GCC 30 ms to read, torch's 1.6 s.
"""

from __future__ import annotations

import re

from aotpack.export.backends.cpp_text import blank_literals

# What a source with own headers begins with, without elementary functions and with them.
OWN = '#include "generated/kernel.h"'
OWN_FUNCTIONS = '#include "generated/functions.h"'

# All of C++ and of the headers that a kernel with own headers may say.
_WORDS = frozenset(
    [
        "extern",
        "C",
        "void",
        "float",
        "double",
        "bool",
        "int",
        "long",
        "int64_t",
        "int32_t",
        "const",
        "auto",
        "static",
        "static_cast",
        "decltype",
        "template",
        "return",
        "if",
        "else",
        "for",
        "true",
        "false",
        "break",
        "continue",
        "std",
        "sqrt",
        "numeric_limits",
        "infinity",
        "array",
        "data",
        "max_propagate_nan",
        "min_propagate_nan",
        "c10",
        "convert",
        "div_floor_integer",
        "C10_LIKELY",
        "C10_UNLIKELY",
        "__at_align__",
        "at",
        "vec",
        "Vectorized",
        "VectorizedN",
        "VecMask",
        "loadu",
        "store",
        "blendv",
        "set",
        "arange",
        "from",
        "cast",
        "to",
        "all_masked",
        "all_zero",
        "is_masked",
        "vec_reduce_all",
        "sum_masked_reduce",
        "max_masked_reduce",
        "min_masked_reduce",
        "Welford",
        "WelfordHelper",
        "welford_combine",
        "welford_vec_reduce_all",
        "mean",
        "m2",
        "weight",
        "maximum",
        "minimum",
        "clamp_min",
        "clamp_max",
        "isnan",
        "neg",
        "abs",
        "reciprocal",
        "AOTI_TORCH_CHECK",
        "AOTPACK_FAULT_DECLARE",
        "AOTPACK_FAULT_RAISE",
        "AOTPACK_GUARD_BEGIN",
        "AOTPACK_GUARD_END",
        "omp_get_thread_num",
        "omp_get_max_threads",
    ]
)
_FUNCTIONS = frozenset(["aotpack_erf", "erf", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "rsqrt"])
# A call of a vector's: numbers have theirs by themselves.
_SQUARE_ROOT = re.compile(r"\.sqrt\(")
# Names of a kernel's own: its function, arguments, sizes, loop variables, values, arguments of a reduction.
_LOCAL = re.compile(
    r"(?:cpp_fused|(?:in_|out_|in_out_)ptr\d|ks\d|x\d|(?:masked_)?tmp|(?:scalar_|masked_)?welford_helper\d)\w*|tid|max_threads|[ixy]"
)
_WORD = re.compile(r"(?<!\w)[A-Za-z_]\w*")
_DIRECTIVE = re.compile(r"^[ \t]*#[^\n]*", re.MULTILINE)
_STD = re.compile(r"\bstd::")


def own_header(kernel: str) -> str | None:
    """The include that the kernel needs, of aotpack's headers; None where it uses more than they have."""
    text = _DIRECTIVE.sub("", blank_literals(kernel))
    others = {word for word in set(_WORD.findall(text)) - _WORDS if not _LOCAL.fullmatch(word)}
    if not others <= _FUNCTIONS:
        return None
    return OWN_FUNCTIONS if others or _SQUARE_ROOT.search(text) else OWN


def with_own_names(kernel: str) -> str:
    """The kernel where what headers of the standard library declare is called as own headers do."""
    return _STD.sub("aotpack_std::", kernel)
