"""Sites of kernels and their ways, for people. What a kernel reports is its own; names here are of those in modules of
this version (csrc/module/ops), and other kernels are shown by their numbers.
"""

from __future__ import annotations

from aotpack.cli.tuning_run import Site

_DTYPES = {5: "float16", 6: "float32", 15: "bfloat16"}
# As enum Winograd of csrc/kernels/conv.h.
_WINOGRAD = {1: ["Winograd 2x2"], 2: ["Winograd 4x4"]}
_LINEAR = ("depth", "panels", "grid", "staging", "threads")
_KNOBS = {"linear": _LINEAR, "conv": ("block", "grid", "threads"), "gemm": ("depth", "panels", "grid", "threads")}


def site_text(site: Site) -> str:
    """`float32 128x768x3072`"""
    numbers = site.numbers
    dtype = _DTYPES.get(numbers[0], str(numbers[0])) if numbers else ""
    if site.kernel == "linear" and len(numbers) == 7:
        return f"{dtype} {_by(*numbers[1:4])}"
    if site.kernel == "gemm" and len(numbers) == 12:
        return f"{dtype} {_by(*numbers[1:5])}"
    if site.kernel == "conv" and len(numbers) == 25:
        _, n, c, oc, groups = numbers[:5]
        size, kernel, stride = (numbers[at : at + 3] for at in (5, 11, 14))
        more = [f"groups {groups}"] * (groups > 1) + _WINOGRAD.get(numbers[21], [])
        return " ".join([dtype, f"{n}x{c}x{_by(*size[1:])} to {oc}, {_by(*kernel[1:])}/{stride[2]}", *more])
    return " ".join(map(str, numbers))


def way_text(site: Site, choice: int) -> str:
    """`depth 2, threads 1`: the positions of the knobs that are turned."""
    names = _KNOBS.get(site.kernel, ())
    if site.kernel == "conv" and len(site.positions) > 3 and site.positions[3]:
        names = _LINEAR  # a matrix product
    turned = [(knob, choice >> (4 * knob) & 15) for knob in range(8)]
    return ", ".join(f"{names[k] if k < len(names) else f'knob {k}'} {at}" for k, at in turned if at)


def _by(*sizes: int) -> str:
    return "x".join(map(str, sizes))
