"""Makes generated kernels safe to fail and splits them into translation units.

Kernels check indices with AOTI_TORCH_CHECK, which throws, often inside `#pragma omp parallel`, where an exception that
leaves the region ends the process. Each check gets a guard around the innermost loop body that holds it: the exception
is caught there, the message kept, the iteration skipped, and the call fails after the parallel region (the macros are
in csrc/module/shim/failures.h).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from aotpack.export.backends.cpp_text import blank_literals, closing_brace
from aotpack.export.backends.cpu import kernel_words

# What the source of kernels begins with that need all of torch's vectors.
PREFIX = "#include <torch/csrc/inductor/cpp_prefix.h>"
# The most characters of a source by its header, where that is read in no time, and where it takes half a second. The
# sources take a tenth of a second and as long again; all but the last compile while kernels are generated.
QUICK_LIMIT, FUNCTIONS_LIMIT = 12_000, 30_000
_LIMITS = {kernel_words.OWN: QUICK_LIMIT, kernel_words.OWN_FUNCTIONS: FUNCTIONS_LIMIT}
_FUNCTION = re.compile(r'^(?:extern "C"|static|inline|template|void|[a-z])[^;{}]*\b(\w+)\([^;{}]*\)\s*\{', re.MULTILINE)
_CHECK = re.compile(r"\bAOTI_TORCH_CHECK\(|\bTORCH_CHECK\(")
# "index out of bounds: 0 <= tmp2 < 30522L" speaks of the generated code's variables.
_BOUNDS_MESSAGE = re.compile(r'"index out of bounds: ([^"<]*<= )?[^"<]*?(?: < (-?\w+))?"')
# A check of a scalar where a mask decides whether it is read. `~` of a bool is true whatever it is; and what all lanes
# of a vector read must be in range where any of them does.
_MASKED_CHECK = re.compile(r"\| ~\((?:\((\w+)\)\.all_masked\(\)|(\w+))\)(?=, \"index out of bounds)")
# torch 2.13 writes, into every kernel, where divisions by 0 are to be noted: a pointer that all threads of a process
# share. There are no such divisions (decompositions/elementwise/division.py).
_DIVISION_FLAG = re.compile(
    r"^[^\n]*\binductor_cpu_(?:integer_div_error|throw_if_integer_div_error)\w*\b[^\n]*\n", re.MULTILINE
)
_LOOP_HEAD = re.compile(r"\bfor\s*\([^{}]*\)\s*$")
_PRAGMA_HEAD = re.compile(r"#pragma omp [^\n]*\n\s*$")
# A region, and a loop that its threads share.
_REGION = re.compile(r"#pragma omp parallel(?: num_threads\(\w+\))?[ \t]*\n\s*\{")
_SHARED_LOOP = re.compile(r"#pragma omp for[^\n]*")


def without_last_barriers(kernel: str) -> str:
    """The kernel where no loop that ends a parallel region waits at its own end: the region's end waits already.

    Compilers keep both. At a barrier each part of a region needs a thread of its own; without one, any thread computes
    any part (csrc/runtime/host/thread_team.h).
    """
    blanked = blank_literals(kernel)
    ends = []
    for region in _REGION.finditer(blanked):
        closing = closing_brace(blanked, region.end() - 1)
        loops = list(_SHARED_LOOP.finditer(blanked, region.end(), closing))
        if not loops or "nowait" in loops[-1].group():
            continue
        body = blanked.find("{", loops[-1].end(), closing)
        if body >= 0 and not blanked[closing_brace(blanked, body) : closing].strip("} \t\n"):
            ends.append(loops[-1].end())
    for end in reversed(ends):
        kernel = f"{kernel[:end].rstrip()} nowait{kernel[end:]}"
    return kernel


def guard(kernel: str) -> str:
    """The kernel with its checks guarded."""
    kernel = _MASKED_CHECK.sub(_exact_mask, _DIVISION_FLAG.sub("", kernel))
    kernel = _BOUNDS_MESSAGE.sub(_readable_bounds, kernel)
    blanked = blank_literals(kernel)
    if not _CHECK.search(blanked):
        return kernel
    inserts: list[tuple[int, str]] = []
    for function in _FUNCTION.finditer(blanked):
        opening = function.end() - 1
        closing = closing_brace(blanked, opening)
        checks = [m.start() for m in _CHECK.finditer(blanked, opening, closing)]
        if not checks:
            continue
        blocks = dict.fromkeys(_innermost_block(blanked, opening, closing, check) for check in checks)
        # A guard around a block covers the blocks inside it.
        outer = [b for b in blocks if not any(o[0] < b[0] and b[1] < o[1] for o in blocks)]
        # Where two inserts share a position, the one listed first ends up behind.
        inserts.append((closing, "\nAOTPACK_FAULT_RAISE\n"))
        for begin, end in outer:
            inserts.append((begin + 1, "\nAOTPACK_GUARD_BEGIN\n"))
            inserts.append((end, "\nAOTPACK_GUARD_END\n"))
        inserts.append((opening + 1, "\nAOTPACK_FAULT_DECLARE\n"))
    # From the back, so that positions in front stay valid.
    for position, text in sorted(inserts, key=lambda item: item[0], reverse=True):
        kernel = kernel[:position] + text + kernel[position:]
    return kernel


def _exact_mask(match: re.Match[str]) -> str:
    return f"| ({match[1]}).all_zero()" if match[1] else f"| !({match[2]})"


def _readable_bounds(match: re.Match[str]) -> str:
    limit = (match[2] or "").removesuffix("L")
    below = f"below {limit}" if limit.isdigit() else "below the size of the dim that it indexes"
    parts = (["at least 0"] if match[1] else []) + ([below] if match[2] else [])
    return f'"index out of range: an index must be {" and ".join(parts) or "in range"}"'


def _innermost_block(blanked: str, opening: int, closing: int, check: int) -> tuple[int, int]:
    """The block around `check` that is the body of a loop or an OpenMP construct, else the function's own."""
    stack: list[int] = []
    for match in re.finditer(r"[{}]", blanked[opening:check]):
        if match.group() == "{":
            stack.append(opening + match.start())
        else:
            stack.pop()
    for position in reversed(stack[1:]):
        head = blanked[opening:position]
        if _LOOP_HEAD.search(head) or _PRAGMA_HEAD.search(head):
            return position, closing_brace(blanked, position)
    return opening, closing


def translation_units(kernels: Sequence[str], limit: int, *, own_headers: bool = False) -> list[str]:
    """Sources of about `limit` characters each, all kernels guarded. Each can be compiled on its own.

    `own_headers`: kernels that need no more are in sources that include aotpack's headers in the place of torch's.
    """
    units = TranslationUnits(limit, own_headers=own_headers)
    for kernel in kernels:
        units.add(kernel)
    return units.all()


class TranslationUnits:
    """The sources of kernels that come one by one: see `translation_units`.

    `finished` is called with each source that gets no more kernels, as soon as that is known.
    """

    def __init__(
        self, limit: int, *, own_headers: bool = False, finished: Callable[[str], None] = lambda _: None
    ) -> None:
        self._limit = limit
        self._own_headers = own_headers
        self._finished = finished
        # By header, in the order of their first kernels.
        self._units: dict[str, list[list[str]]] = {}

    def add(self, kernel: str) -> None:
        """One more kernel, behind the others."""
        text = without_last_barriers(guard(kernel.strip().removeprefix(PREFIX).strip()))
        header = kernel_words.own_header(text) if self._own_headers else None
        piece = kernel_words.with_own_names(text) if header else text
        units = self._units.setdefault(header or PREFIX, [])
        limit = min(self._limit, _LIMITS.get(header or PREFIX, self._limit))
        if units and sum(map(len, units[-1])) + len(piece) > limit:
            self._finished(_joined(header or PREFIX, units[-1]))
            units.append([])
        elif not units:
            units.append([])
        units[-1].append(piece)

    def all(self) -> list[str]:
        """All sources so far."""
        return [_joined(header, unit) for header, units in self._units.items() for unit in units]


def _joined(header: str, pieces: Sequence[str]) -> str:
    return "\n\n".join([header, *pieces]) + "\n"
