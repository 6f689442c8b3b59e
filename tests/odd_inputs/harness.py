"""Builds all operators under sanitizers, hands them tensors laid out in odd ways, and compares with torch."""

from __future__ import annotations

import math
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aotpack.building.cache import BuildCache
from aotpack.export.backends.cpu import toolchain
from aotpack.export.backends.cpu.score_source import functions_source
from aotpack.targets import Target
from tests.odd_inputs.declarations import Function, driver_source, functions
from tests.support.operators.descriptors import extent
from tests.support.operators.dtypes import DTYPES, TORCH_DTYPES
from tests.support.operators.library import link_library

_ROOT = Path(__file__).resolve().parents[2]
_HALVES = frozenset(["bf16", "f16"])
_SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=all", "-g1"]
TOLERANCE = {
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
    torch.float32: 2e-5,
    torch.complex64: 2e-5,
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
}


@dataclass(frozen=True)
class Case:
    """One call.

    Attributes:
        function: the C function.
        operator: what computes the same by torch: takes `args`, returns tensors.
        args: as the C function takes them, without those that are written to (`out`): tensors, None, numbers, lists.
        fixed: positions in `args` that keep their values in every layout.
        packed: positions of packed weights, which a build lays out: they stay as they are.
        compare: whether results are compared with `operator`'s; else their sizes and dtypes are.
        tolerance: instead of the dtype's.
        refused: whether the call must fail, as torch's does. Otherwise, where torch knows no answer (transforms without
            elements, halves), any will do that keeps to its memory.
    """

    function: str
    operator: Callable[..., Any]
    args: tuple[Any, ...]
    fixed: tuple[int, ...] = ()
    packed: tuple[int, ...] = ()
    compare: bool = True
    tolerance: float | None = None
    refused: bool = False


def build(folder: Path, cache: BuildCache, names: Sequence[str], scores: Sequence[str]) -> Path:
    """A library of these functions, all that they need, and the driver, under ASan and UBSan.

    `scores`: the texts of the score functions that attention is called with.
    """
    driver = folder / "odd_driver.cpp"
    driver.write_text(f"{functions_source(scores)}\n{driver_source(names)}")
    # Optimising takes most of the time under sanitizers, more than it saves in running; and what is optimised away is
    # not checked.
    target = Target.parse("native").name
    plain = toolchain.library_flags(target, halves=_HALVES, optimize="-O0")
    # GCC stores parameters misaligned into the frames of this check (tests/cpp_kernels/CMakeLists.txt).
    # Checks that are calls instead of code compile faster.
    gcc = ["--param=asan-use-after-return=0", "--param=asan-instrumentation-with-call-threshold=0"]
    sanitize = [*_SANITIZE, *([] if toolchain.find_compiler().is_clang else gcc)]

    def flags(source: Path) -> list[str]:
        if not toolchain.includes_torch(source):
            return [*plain, *sanitize]
        return [*toolchain.library_flags(target, halves=_HALVES, optimize="-O0", source=source), *sanitize]

    return link_library(cache, folder / "operators.so", driver, names, flags)


def layouts(case: Case, generator: random.Random) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The case's arguments as they are, then each tensor alone in another layout, then all at once."""
    tensors = [i for i, argument in enumerate(case.args) if isinstance(argument, Tensor)]
    places = [i for i in tensors if i not in case.packed]
    yield "plain", case.args
    for moved in ([place] for place in places) if len(places) > 1 else ():
        yield _moved(case, moved, generator)
    for _ in range(2):
        yield _moved(case, places, generator)


def _moved(case: Case, places: Sequence[int], generator: random.Random) -> tuple[str, tuple[Any, ...]]:
    args = list(case.args)
    labels = []
    for place in places:
        label = generator.choice([name for name in LAYOUTS if place not in case.fixed or name not in _OTHER_VALUES])
        args[place] = LAYOUTS[label](args[place], generator)
        labels.append(f"{place} {label}")
    return ", ".join(labels), tuple(args)


class Shifted(Tensor):
    """Marks a tensor whose memory is to begin `item size` bytes behind an aligned address."""


def _permuted(x: Tensor, generator: random.Random) -> Tensor:
    order = generator.sample(range(x.dim()), x.dim())
    return x.permute(order).contiguous().permute([order.index(d) for d in range(x.dim())])


def _holes(x: Tensor, _: random.Random) -> Tensor:
    return x.new_zeros([2 * n + 1 for n in x.shape])[tuple(slice(1, 1 + 2 * n, 2) for n in x.shape)].copy_(x)


def _repeated(x: Tensor, generator: random.Random) -> Tensor:
    dims = [d for d in range(x.dim()) if x.shape[d] > 1]
    if not dims:
        return x
    d = generator.choice(dims)
    return x.narrow(d, 0, 1).expand(x.shape)


def _odd_ones(x: Tensor, _: random.Random) -> Tensor:
    """Dims of size 1 may have any stride."""
    x = x.contiguous()
    strides = [977 if n == 1 else s for n, s in zip(x.shape, x.stride(), strict=True)]
    return torch.as_strided(x, x.shape, strides) if x.numel() else x


LAYOUTS: dict[str, Callable[[Tensor, random.Random], Tensor]] = {
    "permuted": _permuted,
    "holes": _holes,
    "repeated": _repeated,
    "flipped": lambda x, _: x.flip(list(range(x.dim()))) if x.dim() else x,
    "shifted": lambda x, _: x.contiguous().as_subclass(Shifted),
    "odd strides of ones": _odd_ones,
}


_OTHER_VALUES = ("repeated", "flipped")


def plain(value: Any) -> Any:
    """Without marks, for torch."""
    if isinstance(value, Tensor):
        return value.as_subclass(Tensor)
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _tensor(tensor: Tensor) -> dict[str, Any]:
    shift = tensor.element_size() if isinstance(tensor, Shifted) else 0
    x = tensor.as_subclass(Tensor)
    length = extent(x.shape, x.stride())
    flat = torch.as_strided(x, (length,), (1,)).contiguous() if length else x.new_empty(0)
    return {
        "data": bytes(flat.view(torch.uint8).numpy()) if length else b"",
        "offset": 0,
        "sizes": list(x.shape),
        "strides": list(x.stride()),
        "dtype": DTYPES[x.dtype],
        "item": x.element_size(),
        "shift": shift,
    }


def value(kind: str, argument: Any) -> Any:
    """An argument as the worker takes it."""
    if argument is None:
        return None
    if kind in ("tensors", "optional_tensors"):
        return "tensors", [None if item is None else _tensor(item) for item in argument]
    if "tensor" in kind:
        return "tensors", [_tensor(argument)]
    if kind in ("ints", "optional_ints", "int32s"):
        return "ints", [int(item) for item in argument]
    if kind == "reals":
        return "reals", [float(item) for item in argument]
    if "text" in kind:
        return "text", argument
    if "real" in kind:
        return "reals", [float(argument)]
    return "ints", [int(DTYPES[argument] if isinstance(argument, torch.dtype) else argument)]


def listed(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else [item for item in result if isinstance(item, Tensor)]


def rebuilt(answer: dict[str, Any]) -> Tensor:
    """A tensor that the worker returned."""
    dtype = TORCH_DTYPES[answer["dtype"]]
    if not answer["data"]:
        return torch.empty(answer["sizes"], dtype=dtype)
    flat = torch.frombuffer(bytearray(answer["data"]), dtype=dtype)
    return torch.as_strided(flat, answer["sizes"], answer["strides"])


def run(library: Path, folder: Path, calls: Sequence[tuple[str, str, list[Any], int, int]]) -> list[Any]:
    """Answers of `calls`, from a process under the sanitizers; an AssertionError with their report if they stop it."""
    given, results = folder / "calls.pickle", folder / "results.pickle"
    given.write_bytes(pickle.dumps(list(calls)))
    # The C++ library with it: else exceptions are thrown by one that it does not know.
    preload = [_library(name) for name in ("libasan.so", "libstdc++.so.6")]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(preload),
        # GCC 13 puts vectors at addresses that are not theirs when it checks uses after a return (its bug 110027).
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "OMP_WAIT_POLICY": "passive",
    }
    command = [sys.executable, "-m", "tests.odd_inputs.worker", str(library), str(given), str(results)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=900, cwd=_ROOT)
    if done.returncode != 0:
        labels = Path(str(results) + ".label")
        last = labels.read_text().splitlines()[-1] if labels.is_file() else "before the first call"
        report = "\n".join(done.stderr.splitlines()[:60])
        raise AssertionError(f"{last}: the process ended with {done.returncode}\n{report}")
    return list(pickle.loads(results.read_bytes()))


def _library(name: str) -> str:
    command = [*toolchain.find_compiler().command, f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@dataclass(frozen=True)
class Prepared:
    """A call with what it should return: tensors, or None where torch raises."""

    label: str
    case: Case
    function: Function
    values: list[Any]
    want: list[Tensor] | None
    outs: int


def prepare(case: Case, generator: random.Random) -> Iterator[Prepared]:
    """The case in all layouts."""
    function = functions()[case.function]
    outs = int(function.results == 0 and "out" in function.names)
    for label, args in layouts(case, generator):
        try:
            want: list[Tensor] | None = listed(case.operator(*(plain(argument) for argument in args)))
        except (RuntimeError, IndexError, ValueError):
            want = None
        given = list(args)
        values = []
        for kind, name in zip(function.kinds, function.names, strict=True):
            if outs and name == "out":
                if want is None:
                    return
                values.append(value(kind, torch.full_like(want[0], 77).contiguous()))
            else:
                values.append(value(kind, given.pop(0)))
        assert not given, f"{case.function} takes {function.names}"
        yield Prepared(f"{case.function} {_sizes(args)} {label}", case, function, values, want, outs)


def _sizes(args: Sequence[Any]) -> str:
    return ", ".join(
        f"{str(a.dtype).removeprefix('torch.')}{list(a.shape)}" if isinstance(a, Tensor) else str(a)[:20] for a in args
    )


def check(prepared: Prepared, answer: Any) -> None:
    """Compares an answer with what torch says."""
    label = prepared.label
    if prepared.case.refused:
        assert prepared.want is None, f"{label}: torch does not raise"
        assert isinstance(answer, str), f"{label}: torch raises, and the operator does not"
    if prepared.want is None:
        return
    assert not isinstance(answer, str), f"{label}: {answer}"
    made, given = answer
    results = [rebuilt(item) for item in (given[:1] if prepared.outs else made)]
    for got, want in zip(results, prepared.want, strict=False):
        assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{label}: {got.shape} {got.dtype}"
        if prepared.case.compare:
            tolerance = prepared.case.tolerance
            tolerance = TOLERANCE.get(want.dtype, 0.0) if tolerance is None else tolerance
            scale = max(1.0, float(want.abs().max())) if want.numel() and want.dtype.is_floating_point else 1.0
            scale = scale if math.isfinite(scale) else 1.0
            torch.testing.assert_close(
                got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True, msg=lambda text: f"{label}: {text}"
            )
