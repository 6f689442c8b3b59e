"""What a kind of device does in a build: passes, code generation, compiling.

The driver runs the common passes once, then for each backend its own passes, and has it lower and
compile for each of its targets. A new kind of device is a folder beside `cpu/` with one object of this protocol, and a
line in `driver/backends.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from aotpack.building.cache import BuildCache
from aotpack.building.compiler import Compiler
from aotpack.building.module_sources import ModuleSources
from aotpack.building.waiting import WaitingCompiler
from aotpack.export.backends.precompiled import Precompiled
from aotpack.export.ir.program import ConstantInfo, Program
from aotpack.export.passes.runner import Pass
from aotpack.spec import Check
from aotpack.targets import BY_NAME


@dataclass(frozen=True)
class LoweredConstant:
    """A constant that a module reads: an attribute of its program, or a `literal` that code generation made.

    Attributes:
        name: the attribute of the program.
        info: role, origin and recipe.
        dtype, shape, stride: the layout in which the module reads it; strides count elements.
        literal: the value, where the program has no such attribute.
    """

    name: str
    info: ConstantInfo
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    literal: torch.Tensor | None = None

    @property
    def layout(self) -> tuple[object, ...]:
        """Equal for constants that modules read in the same way."""
        return (self.dtype, self.shape, self.stride)


@dataclass(frozen=True)
class HostStep:
    """A call of an operator that a module for a device runs on the host.

    Attributes:
        operator: `aten.topk`.
        module: path and class of the innermost module of the model that it is in; "" where there is none.
        line: of the model; "" if it is not known.
        nbytes: what is copied between device and host; None where sizes are dynamic.
        provider: the library that does it on the device, where the host has it; "" if none does.
    """

    operator: str
    module: str
    line: str
    nbytes: int | None
    provider: str = ""

    def describe(self) -> str:
        """The operator, its line in the model and what is copied, in words."""
        size = "a dynamic number of bytes" if self.nbytes is None else f"{self.nbytes} bytes"
        unless = f" unless {self.provider} computes it" if self.provider else ""
        return (
            f"{self.operator} runs on the host{unless}, {size} copied per call{f': {self.line}' if self.line else ''}"
        )


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel in the code of a module.

    Attributes:
        name: of the kernel.
        operators: the source operators that it computes, as far as code generation says.
        nodes: the nodes of the module's program that it computes: the name of a graph inside ("" for the program's) and
            of the node.
    """

    name: str
    operators: tuple[str, ...]
    nodes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class MemoryBlock:
    """Memory that a module allocates for a value, in use from the kernel `first` to the kernel `last`: bytes at the
    sizes of the example. `output`: it is returned.
    """

    name: str
    nbytes: int
    first: int
    last: int
    output: bool


@dataclass(frozen=True, kw_only=True)
class LoweredModule:
    """Sources of one module, before compiling.

    Attributes:
        target: what it is for.
        sources: the generated texts.
        constants: what it reads, in the order in which it gets them.
        kernels: the calls of kernels, in order; for people.
        checks: what calls must satisfy beyond what the program says.
        host_steps: what a module for a device runs on the host, in order.
        choices: the configurations that were chosen for autotuned kernels of the user; for people.
        tf32: whether it multiplies float32 in TF32, in kernels of this project or of the user.
        blocks: memory that it allocates for values; for people. Empty if the backend does not tell.
        hooks: whether it tells the runtime when each kernel begins and ends.
        providers: the libraries that it calls where the host has them.
    """

    target: str
    sources: tuple[str, ...]
    constants: tuple[LoweredConstant, ...]
    kernels: tuple[KernelCall, ...]
    checks: tuple[Check, ...] = ()
    host_steps: tuple[HostStep, ...] = ()
    choices: tuple[str, ...] = ()
    tf32: bool = False
    blocks: tuple[MemoryBlock, ...] = ()
    hooks: bool = False
    providers: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompiledAsset:
    """A named byte range that goes with a module, such as code for its device."""

    name: str
    data: bytes


@dataclass(frozen=True)
class CompiledCode:
    """A compiled module.

    Attributes:
        code: the shared object.
        imports: the functions that it asks of the runtime, in its order.
        assets: what goes with it, in the order of its table.
        features: what it needs of the runtime, by the names that manifests have.
    """

    code: bytes
    imports: tuple[str, ...]
    assets: tuple[CompiledAsset, ...] = ()
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tools:
    """What builds share: the cache, the C++ compiler of the host, the number of compiler processes at a time, the
    optimization level (1 to 3) of generated C++, compilers that wait for generated code, and compilers for CPUs of
    other architectures, by architecture.
    """

    cache: BuildCache
    compiler: Compiler
    jobs: int | None = None
    opt_level: int = 3
    waiting: tuple[WaitingCompiler, ...] = ()
    cross: Mapping[str, Compiler] = field(default_factory=dict)

    def for_target(self, target: str) -> Tools:
        """These, with the compiler for a target's architecture."""
        return replace(self, compiler=self.cross.get(BY_NAME[target].arch, self.compiler))


# Called with a target and a source of its module that is complete before the others.
Ahead = Callable[[str, str], None]


class Backend(Protocol):
    """One kind of device."""

    @property
    def name(self) -> str:
        """As `TargetInfo.backend` has it."""

    @property
    def passes(self) -> tuple[Pass, ...]:
        """What chooses kernels and layouts, in order; they run after those of `passes/common`."""

    def headers(self, target: str, tools: Tools) -> tuple[Precompiled, ...]:
        """What generated sources begin with, that which takes longest first."""

    def expects_headers(self, target: str, programs: Sequence[Program]) -> bool:
        """Whether the code of some of `programs`, which are as captured, is likely to begin with one of these."""

    def compile_ahead(self, program: Program, targets: Sequence[str], tools: Tools) -> AbstractContextManager[Ahead]:
        """Compiles, while active, what is known before code is generated, and what it is called with."""

    def lower(
        self,
        program: Program,
        target: str,
        *,
        weights_known: bool,
        shared: bool = False,
        hooks: bool = False,
        providers: Collection[str] = (),
        ahead: Ahead = lambda *_: None,
    ) -> Any:
        """Generates the sources of a module: a `LoweredModule` of its own class.

        Args:
            program: after this backend's passes.
            target: one of this backend's.
            weights_known: whether code may be made for the values of weights.
            shared: whether the module computes other programs too, which have other constants.
            hooks: whether the module tells the runtime when each kernel begins and ends, for profiles.
            providers: libraries that modules for devices call where the host has them.
            ahead: what `compile_ahead` returned.

        Raises:
            BuildError: this backend has no hooks.
            UnsupportedOperatorError: operators without a kernel; all of them are listed.
            LoweringError: code generation failed.
        """

    def compile(self, module: Any, tools: Tools, *, progress: Callable[[str], None] | None = None) -> CompiledCode:
        """The module: its shared object, and what goes with it.

        Args:
            module: what `lower` returned.
            tools: the cache and the compiler.
            progress: called with the name of each source after it compiles.

        Raises:
            CompileError: the compiler failed.
        """

    def sources(self, module: Any, tools: Tools) -> ModuleSources:
        """What `compile` compiles the module from.

        Raises:
            CompileError: a source of the user cannot be preprocessed.
        """

    def provenance(self, modules: Sequence[Any], tools: Tools) -> dict[str, str]:
        """What the manifest's `producer` says of the modules: flags, kernels of the user."""
