"""Runs the kernels of archives in this process, on the driver without a GPU. Needs TRITON_INTERPRET=1."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import json
import os
import re
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle, interpreter_builder

from tests.export.backends.cuda.cubins import Cubin, read_cubin
from tests.support.interpreted_gpu import language

Array = npt.NDArray[Any]

_ILLEGAL_ADDRESS, _MISALIGNED_ADDRESS, _ASSERT, _LAUNCH_FAILED = 700, 716, 710, 719
_ARGUMENTS = {"i1": "?", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u1": "?", "u8": "B", "u16": "H", "u32": "I",
              "u64": "Q", "fp32": "f", "fp64": "d"}  # fmt: skip
_MATRIX = re.compile(r"tensordesc<(\w+)\[(\d+, \d+)\].*>")
# Triton passes two more to every kernel: scratch memory of the launch and of the profiler.
_SCRATCH = 2


class _Interface(ctypes.Structure):
    FIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
    RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_void_p))
    _fields_ = (("find", FIND), ("run", RUN))


class _Fault(Exception):
    def __init__(self, result: int, text: str) -> None:
        super().__init__(text)
        self.result = result


@dataclass(frozen=True)
class _Kernel:
    name: str
    function: Callable[..., Any]
    parameters: tuple[tuple[str, str], ...]  # names and Triton's types
    constants: dict[str, Any]
    aligned: frozenset[str]


class InterpretedGpu:
    """The driver `library`, with the kernels that `recorded_kernels` left in a folder.

    Attributes:
        launches: how often kernels ran.
    """

    def __init__(self, library: Path, kernels: Path) -> None:
        assert os.environ.get("TRITON_INTERPRET") == "1"
        os.environ["AOTPACK_LIBCUDA"] = str(library)
        self.launches = 0
        self._folder = kernels
        self._kernels: list[_Kernel] = []
        self._known: dict[str, int] = {}
        self._sources = tempfile.TemporaryDirectory(prefix="aotpack-kernels-")
        self._driver = ctypes.CDLL(str(library))
        self._driver.fake_cuda_shadow.restype = ctypes.c_uint64
        self._driver.fake_cuda_shadow.argtypes = [ctypes.c_uint64]
        self._driver.fake_cuda_calls.restype = ctypes.c_uint64
        self._driver.fake_cuda_blocks.restype = ctypes.c_size_t
        self._driver.fake_cuda_blocks.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self._begins = self._ends = np.empty(0, np.uint64)
        language.install(self._check_access)
        # Kept: the driver has their addresses alone.
        self._interface = _Interface(_Interface.FIND(self._find), _Interface.RUN(self._run))
        self._driver.fake_cuda_set_interpreter(ctypes.byref(self._interface))

    def driver_calls(self, function: str) -> int:
        """How often a function of the driver was called."""
        return int(self._driver.fake_cuda_calls(function.encode()))

    def _find(self, code: int, name: bytes, out_sizes: int, out_count: int) -> int:
        try:
            raw = _elf_file(code)
            digest = hashlib.sha256(raw).hexdigest()
            if digest not in self._known:
                record = json.loads((self._folder / f"{digest}.json").read_text())
                assert record["entry"] == name.decode()
                self._kernels.append(self._kernel(record, digest))
                self._known[digest] = len(self._kernels) - 1
            number = self._known[digest]
            kinds = [kind for _, kind in self._kernels[number].parameters]
            sizes = [size for kind in kinds for size in _sizes(kind)] + [8] * _SCRATCH
            _check_arguments(sizes, read_cubin(raw), name.decode())
            ctypes.memmove(out_sizes, (ctypes.c_size_t * len(sizes))(*sizes), 8 * len(sizes))
            ctypes.memmove(out_count, ctypes.byref(ctypes.c_size_t(len(sizes))), 8)
        except Exception:
            traceback.print_exc()
            return -1
        return number

    def _kernel(self, record: dict[str, Any], digest: str) -> _Kernel:
        path = Path(self._sources.name) / f"kernel_{digest[:16]}.py"
        path.write_text(record["source"])
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with _plain_kernels():
            spec.loader.exec_module(module)
        signature = record["signature"]
        return _Kernel(
            record["name"],
            getattr(module, record["name"]).rewrite(),
            tuple((name, kind) for name, kind in signature.items() if kind != "constexpr"),
            record["constants"],
            frozenset(record["aligned"]),
        )

    def _run(self, number: int, grid: Any, arguments: Any) -> int:
        kernel = self._kernels[number]
        try:
            self._launch(kernel, (grid[0], grid[1], grid[2]), arguments)
        except Exception as error:
            print(f"kernel {kernel.name}:", file=sys.stderr)
            traceback.print_exc()
            return error.result if isinstance(error, _Fault) else _LAUNCH_FAILED
        return 0

    def _launch(self, kernel: _Kernel, grid: tuple[int, int, int], arguments: Any) -> None:
        self.launches += 1
        self._read_blocks()
        values = dict(kernel.constants)
        index = 0
        for name, kind in kernel.parameters:
            sizes = _sizes(kind)
            raw = ctypes.string_at(arguments[index], sizes[0])
            index += len(sizes)
            values[name] = self._argument(name, kind, raw, name in kernel.aligned)
        interpreter_builder.set_grid_dim(*grid)
        with np.errstate(all="ignore"):
            for x in range(grid[0]):
                for y in range(grid[1]):
                    for z in range(grid[2]):
                        interpreter_builder.set_grid_idx(x, y, z)
                        try:
                            kernel.function(**values)
                        except (interpreter.InterpreterError, AssertionError) as error:
                            raise _fault_of(error) from error

    def _argument(self, name: str, kind: str, raw: bytes, aligned: bool) -> Any:
        if (block := _MATRIX.fullmatch(kind)) is not None:
            return self._matrix(block[1], [int(size) for size in block[2].split(",")], raw)
        (value,) = struct.unpack("<Q" if kind.startswith("*") else "<" + _ARGUMENTS[kind], raw)
        if aligned and value % 16 != 0:
            raise _Fault(_MISALIGNED_ADDRESS, f"{name} = {value:#x}, but the kernel is compiled for multiples of 16")
        if kind.startswith("*"):
            value = self._driver.fake_cuda_shadow(value)
            type_ = tl.pointer_type(tl.str_to_ty(kind.removeprefix("*"), None))
            return tl.tensor(TensorHandle(np.array([value], np.uint64), type_), type_)
        type_ = tl.str_to_ty(kind, None)
        return tl.tensor(TensorHandle(np.array([value], interpreter._get_np_dtype(type_)), type_), type_)

    def _matrix(self, dtype: str, block: list[int], raw: bytes) -> Any:
        """What a kernel reads blocks of: as the driver without a GPU describes it."""
        address, columns, rows, stride, *_ = struct.unpack_from("<7Q", raw)
        numbers = [self._argument("", "i64", struct.pack("<q", n), False) for n in (rows, columns, stride, 1)]
        base = self._argument("", f"*{dtype}", struct.pack("<Q", address), True)
        shape = [tl.constexpr(size) for size in block]
        return interpreter.interpreter_semantic.make_tensor_descriptor(base, numbers[:2], numbers[2:], shape, "zero")

    def _read_blocks(self) -> None:
        count = self._driver.fake_cuda_blocks(None, None, 0)
        begins, sizes = np.empty(count, np.uint64), np.empty(count, np.uint64)
        self._driver.fake_cuda_blocks(begins.ctypes.data, sizes.ctypes.data, count)
        order = np.argsort(begins)
        self._begins, self._ends = begins[order], (begins + sizes)[order]

    def _check_access(self, addresses: Array, size: int) -> None:
        if addresses.size == 0:
            return
        addresses = addresses.astype(np.uint64)
        block = np.searchsorted(self._begins, addresses, side="right") - 1
        inside = (block >= 0) & (addresses + np.uint64(size) <= self._ends[np.maximum(block, 0)])
        if not inside.all():
            wrong = addresses[~inside]
            raise _Fault(_ILLEGAL_ADDRESS, f"{wrong.size} accesses outside of allocations, the first at {wrong[0]:#x}")


def _fault_of(error: BaseException) -> BaseException:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, _Fault):
            return cause
        if isinstance(cause, AssertionError):
            return _Fault(_ASSERT, str(cause))
        cause = cause.__cause__
    return error


@contextlib.contextmanager
def _plain_kernels() -> Iterator[None]:
    """Decorators of generated sources do nothing in this block: no tuning, no launcher, no search for a GPU."""
    names = ("pointwise", "reduction", "persistent_reduction", "cooperative_reduction", "split_scan", "template")
    with contextlib.ExitStack() as stack:
        for name in (*names, "user_autotune", "foreach"):
            stack.enter_context(mock.patch.object(triton_heuristics, name, return_value=lambda function: function))
        stack.enter_context(mock.patch.object(triton_helpers, "set_driver_to_gpu"))
        yield


def _sizes(kind: str) -> list[int]:
    """Of the arguments that a parameter is passed as, in bytes."""
    if _MATRIX.fullmatch(kind) is not None:
        return [128, 4, 4, 8, 8]
    return [8 if kind.startswith("*") else struct.calcsize("<" + _ARGUMENTS[kind])]


def _check_arguments(sizes: list[int], cubin: Cubin, kernel: str) -> None:
    wanted, begin = cubin.arguments[kernel], cubin.begins[kernel]
    end = begin
    for size in sizes:
        alignment = min(size, 64)
        end = -(-end // alignment) * alignment + size
    assert end - begin == wanted, f"the kernel takes {wanted} bytes of arguments, its source {end - begin}"


def _elf_file(code: int) -> bytes:
    """The whole file at an address; its headers are at its end."""
    head = ctypes.string_at(code, 64)
    (programs, sections), (program_size, num_programs, section_size, num_sections) = (
        struct.unpack_from("<QQ", head, 32),
        struct.unpack_from("<HHHH", head, 54),
    )
    end = max(programs + program_size * num_programs, sections + section_size * num_sections)
    return ctypes.string_at(code, end)
