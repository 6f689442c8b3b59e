"""Custom operators whose kernels the user brings: which operator is computed by which C++ function.

>>> custom_kernel("vision::nms", sources=[Path(__file__).with_name("nms.cpp")])

A kernel is compiled into each archive whose model calls the operator, for each of its targets. docs/custom_ops.md
teaches how one is written (`aotpack/operator.h`).

"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from aotpack.building import native_sources
from aotpack.errors import BuildError
from aotpack.export.torch_compat.dispatch import has_kernel
from aotpack.export.torch_compat.library import custom_definition
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from aotpack.targets import Target

PathLike: TypeAlias = str | os.PathLike[str]

_NAME = re.compile(r"[A-Za-z_]\w*::[A-Za-z_]\w*(\.[A-Za-z_]\w*)?")
_FUNCTION = re.compile(r"(::)?[A-Za-z_]\w*(::[A-Za-z_]\w*)*")
_OBJECT_SUFFIXES = (".o", ".a")


@dataclass(frozen=True)
class CustomKernel:
    """The arguments of `custom_kernel`. `objects` are by target, those under None for every one."""

    operator: str
    function: str
    sources: tuple[Path, ...]
    include_dirs: tuple[Path, ...]
    flags: tuple[str, ...]
    objects: tuple[tuple[str | None, tuple[Path, ...]], ...]
    triton: Callable[..., Any] | None = None

    def objects_for(self, target: str) -> tuple[Path, ...]:
        """The objects and static archives to link for `target`.

        Raises:
            BuildError: there are some for other targets alone.
        """
        by_target = dict(self.objects)
        if None not in by_target and by_target and target not in by_target:
            raise BuildError(
                f"the kernel of {self.operator} has objects for {', '.join(map(str, by_target))}, none for {target}",
                hint=f'compile one for it and add it: objects={{"{target}": [...]}}',
            )
        return (*by_target.get(None, ()), *by_target.get(target, ()))


_registered: dict[str, CustomKernel] = {}


def custom_kernel(
    operator: str,
    *,
    sources: PathLike | Sequence[PathLike] = (),
    function: str | None = None,
    include_dirs: Sequence[PathLike] = (),
    flags: Sequence[str] = (),
    objects: Mapping[str, Sequence[PathLike]] | Sequence[PathLike] | None = None,
    triton: Callable[..., Any] | None = None,
) -> CustomKernel:
    """Registers the kernel of a custom operator: in C++ for CPUs, with Triton for GPUs, or both. Call it before the
    model is captured; a second call for the same operator replaces the first.

    The operator itself is defined with `torch.library`: with a schema, a fake implementation, and an implementation for
    eager PyTorch, which runs the example call. The eager implementation is not part of the archive.

    Args:
        operator: `"namespace::name"`, or `"namespace::name.overload"`.
        sources: C++20 files. The first one defines the function, or declares it (a header, if objects define it). The
            others are compiled separately. Relative paths are relative to the working directory.
        function: the qualified name of the C++ function. Default: the operator's name without its namespace. Its
            signature follows from the operator's schema and is checked when it is compiled.
        include_dirs: include directories, in addition to the directories of the sources.
        flags: compiler flags, added after aotpack's own flags (which include `-O2 -ffp-contract=off`), e.g. `["-O3"]`.
        objects: object files and static archives (`.o`, `.a`) to link: target → files, or files for all targets.
        triton: a function that computes the operator on GPUs. It accepts the operator's arguments and returns its
            results; it calls torch operators and Triton kernels, each of these by `torch.library.wrap_triton`. Without
            sources and objects, CPUs compute the operator by its Python implementation.

    Raises:
        BuildError: a name is invalid, a file is missing or unsupported, no kernel is given, torch decomposes the
            operator, or `triton` is given for one that writes to an argument or was not defined by
            `torch.library.custom_op`.
    """
    if not _NAME.fullmatch(operator):
        raise BuildError(
            f"{operator!r} is not the name of an operator",
            hint='use namespace::name or namespace::name.overload, e.g. "vision::nms"',
        )
    listed = (sources,) if isinstance(sources, (str, os.PathLike)) else tuple(sources)
    by_target = objects if isinstance(objects, Mapping) else {None: objects} if objects else {}
    kernel = CustomKernel(
        operator,
        function or operator.partition("::")[2].partition(".")[0],
        tuple(_file(operator, source) for source in listed),
        tuple(_folder(operator, folder) for folder in include_dirs),
        tuple(flags),
        tuple(
            (None if target is None else Target.parse(target).name, tuple(_object(operator, file) for file in files))
            for target, files in by_target.items()
        ),
        triton,
    )
    if not kernel.sources and not kernel.objects and triton is None:
        raise BuildError(f"no kernel is given for {operator}", hint="pass its C++ file: sources=[...]")
    if not _FUNCTION.fullmatch(kernel.function):
        raise BuildError(f"{kernel.function!r} is not the name of a C++ function")
    _refuse_composite(operator)
    if triton is not None:
        _check_for_triton(operator)
    _registered[operator] = kernel
    return kernel


def kernel_include_dir() -> Path:
    """The folder with `aotpack/operator.h`, for those who compile objects themselves (`-std=c++20 -fPIC`)."""
    return native_sources.source_root() / "include"


@contextlib.contextmanager
def custom_kernels_restored() -> Iterator[None]:
    """What is registered while active is forgotten afterwards."""
    before = dict(_registered)
    try:
        yield
    finally:
        _registered.clear()
        _registered.update(before)


def qualified_name(op: OpOverload) -> str:
    """`namespace::name`, with `.overload` unless that is the default."""
    schema = operator_schema(op)
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def kernel_of(op: OpOverload) -> CustomKernel | None:
    """What was registered for an operator, also if it has nothing for a CPU."""
    return _registered.get(qualified_name(op))


def operators_with_kernels() -> dict[OpOverload, CustomKernel]:
    """Operators that a CPU can compute by the C++ that the user gave. Those that torch does not know yet are left
    out.
    """
    found = {}
    for name, kernel in _registered.items():
        op = _find(name)
        if op is not None and (kernel.sources or kernel.objects):
            _refuse_composite(name)
            found[op] = kernel
    return found


def operators_with_functions() -> dict[OpOverload, CustomKernel]:
    """All operators with a kernel of the user that torch knows."""
    return {op: kernel for name, kernel in _registered.items() if (op := _find(name)) is not None}


def _check_for_triton(operator: str) -> None:
    op = _find(operator)
    if op is None or custom_definition(operator) is None:
        raise BuildError(
            f"{operator} has a function for GPUs, but was not defined by torch.library.custom_op",
            hint="define the operator with torch.library.custom_op before custom_kernel(triton=...)",
        )
    if operator_schema(op).is_mutable:
        raise BuildError(
            f"{operator} writes to an argument, which operators with a function for GPUs must not",
            hint="return the new value, or define the operator with torch.library.triton_op",
        )


def _find(name: str) -> OpOverload | None:
    path, _, overload = name.partition(".")
    namespace, _, short = path.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short, None)
    found = getattr(packet, overload or "default", None)
    return found if isinstance(found, OpOverload) else None


def _refuse_composite(operator: str) -> None:
    if _find(operator) is not None and has_kernel(operator, "CompositeImplicitAutograd"):
        raise BuildError(
            f"{operator} is registered as CompositeImplicitAutograd: torch decomposes it, its kernel never runs",
            hint='register its eager implementation for "CPU" or "CompositeExplicitAutograd"',
        )


def _file(operator: str, given: PathLike) -> Path:
    path = Path(given).resolve()
    if not path.is_file():
        raise BuildError(
            f"no such file: {path}, which should contain the kernel of {operator}",
            hint="relative paths are relative to the working directory; Path(__file__).with_name(...) is beside the "
            "Python file",
        )
    return path


def _folder(operator: str, given: PathLike) -> Path:
    path = Path(given).resolve()
    if not path.is_dir():
        raise BuildError(f"no such directory: {path}, an include directory of the kernel of {operator}")
    return path


def _object(operator: str, given: PathLike) -> Path:
    path = _file(operator, given)
    if path.suffix not in _OBJECT_SUFFIXES:
        raise BuildError(
            f"{path} cannot be linked into an archive: it is neither an object (.o) nor a static archive (.a)",
            hint="an archive contains all of its code; a shared library would be needed wherever it runs",
        )
    return path
