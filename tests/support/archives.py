"""Archives for tests, made of C modules and a recipe."""

from __future__ import annotations

import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aotpack.archive import (
    Constant,
    Entry,
    FileSource,
    Fold,
    Golden,
    GoldenTensor,
    Groups,
    Guard,
    Implementation,
    Kernel,
    Manifest,
    Module,
    Placement,
    Variant,
    Weights,
    WeightTensor,
    layout_constants,
    write_archive,
)
from aotpack.archive.values_json import NUMBER_DTYPES
from aotpack.building.native_sources import module_abi_version
from aotpack.spec import CallSpec, Check, Dim, DimRef, DType, Expr, Spec, TensorSpec, contiguous_order

CompileC = Callable[[str], bytes]

PRELUDE = """
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include "aotpack/module_abi.h"

enum { ALLOC, FREE, FAIL, SEED };
typedef aotpack_module_tensor Tensor;

static inline int64_t count(const Tensor* t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; ++i) n *= t->sizes[i];
  return n;
}

/* A contiguous output with the sizes of `like`. */
static inline void* make(const aotpack_module_call* call, int index, const Tensor* like, int dtype, size_t itemsize) {
  Tensor* out = &call->outputs[index];
  out->dtype = dtype;
  out->rank = like->rank;
  int64_t stride = 1;
  for (int i = like->rank; i-- > 0;) {
    out->sizes[i] = like->sizes[i];
    out->strides[i] = stride;
    stride *= like->sizes[i];
  }
  out->block = out->data = ((aotpack_import_alloc_fn)call->imports[ALLOC])(call->runtime, (size_t)stride * itemsize);
  return out->data;
}

static inline int32_t fail(const aotpack_module_call* call, int32_t code, const char* message) {
  ((aotpack_import_fail_fn)call->imports[FAIL])(call->runtime, code, message, strlen(message));
  return code;
}

static int32_t run(const aotpack_module_call* call);
"""

EPILOGUE = """
static const char* const kImports[] = {{"alloc", "free", "fail", "seed"}};
static int32_t run_with_devices(const aotpack_module_call* call) {{
  const int32_t code = run(call);
  for (int i = 0; i < {outputs}; ++i) call->output_devices[i] = call->device;
  return code;
}}
static const aotpack_module kModule = {{
    AOTPACK_MODULE_ABI_VERSION, sizeof(aotpack_module), "{target}", {inputs}, {outputs}, {constants}, 4, kImports,
    run_with_devices, 0, 0, 0, 0}};
__attribute__((visibility("default"))) const aotpack_module* aotpack_module_query(uint32_t version) {{
  return version >= AOTPACK_MODULE_ABI_VERSION ? &kModule : 0;
}}
"""


@dataclass(frozen=True)
class Weight:
    """A float32 constant of the recipe."""

    name: str
    values: tuple[float, ...]
    mutated: bool = False


@dataclass(frozen=True)
class Example:
    """A golden: the bytes of its tensors."""

    inputs: tuple[tuple[DType, tuple[int, ...], bytes], ...]
    outputs: tuple[tuple[DType, tuple[int, ...], bytes], ...]
    tolerance: float = 1e-4


@dataclass(frozen=True)
class Updates:
    """What makes an archive updatable: the tensors, and the recipe of the entry `fold` that computes the weights whose
    indices are `results`.
    """

    tensors: tuple[WeightTensor, ...]
    fold: Recipe | None = None
    results: tuple[int, ...] = ()


@dataclass(frozen=True)
class Choice:
    """A variant of the recipe's entries. All have the recipe's one module; which was chosen, the context says."""

    name: str
    guards: tuple[Guard, ...] = ()
    checks: tuple[Check, ...] = ()
    same: Groups = ()


@dataclass(frozen=True)
class Recipe:
    """An archive of one entry. `body` is C: the function `run`."""

    body: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    in_spec: CallSpec
    out_spec: Spec
    dims: tuple[Dim, ...] = ()
    weights: tuple[Weight, ...] = ()
    examples: tuple[Example, ...] = ()
    entries: tuple[str, ...] = ("forward",)
    variants: tuple[Choice, ...] = (Choice("default"),)
    target: str = "x86-64-v3"
    name: str = "test"
    producer: dict[str, str] = field(default_factory=lambda: {"aotpack": "test"})
    updates: Updates | None = None
    report: bytes | None = None
    # Without the bytes of its weights, all of which are in the state dict or results of the fold.
    code_only: bool = False


def tensor(
    name: str,
    shape: Sequence[int | str | DimRef | Expr],
    dtype: DType = DType.FLOAT32,
    *,
    order: tuple[int, ...] | None = None,
    mutated: bool = False,
) -> TensorSpec:
    """A tensor; a string in its shape is a dim."""
    sizes = tuple(DimRef(size) if isinstance(size, str) else size for size in shape)
    return TensorSpec(name, dtype, sizes, order or contiguous_order(len(sizes)), mutated)


def number(name: str, kind: str, dim: str | None = None) -> TensorSpec:
    """A Python number: kind is "int", "float" or "bool"; `dim` is the one whose value an int is."""
    return TensorSpec(name, NUMBER_DTYPES[kind], (), (), number=kind, dim=dim, device=None)


def floats(*values: float) -> bytes:
    """The bytes of float32 values."""
    return array.array("f", values).tobytes()


def c_source(recipe: Recipe) -> str:
    """The module of a recipe."""
    epilogue = EPILOGUE.format(
        target=recipe.target,
        inputs=len(recipe.inputs),
        outputs=len(recipe.outputs),
        constants=len(recipe.weights),
    )
    return PRELUDE + recipe.body + epilogue


def build_manifest(recipe: Recipe, code: bytes, fold_code: bytes = b"") -> tuple[Manifest, list[FileSource]]:
    """The manifest, without files, and the files."""
    given = () if recipe.code_only else recipe.weights
    layout = layout_constants((weight.name, floats(*weight.values)) for weight in given)
    sources = list(layout.segments)
    constants = tuple(_constant(weight, layout.placements.get(weight.name)) for weight in recipe.weights)
    module = _module(recipe, sources, code, tuple(range(len(constants))))
    goldens = []
    data = bytearray()
    for example in recipe.examples:

        def add(items: tuple[tuple[DType, tuple[int, ...], bytes], ...]) -> tuple[GoldenTensor, ...]:
            result = []
            for dtype, shape, raw in items:
                result.append(GoldenTensor(dtype, shape, len(sources), len(data), len(raw)))
                data.extend(raw)
            return tuple(result)

        goldens.append(Golden(add(example.inputs), add(example.outputs), example.tolerance))
    if goldens:
        sources.append(FileSource.from_bytes("goldens/0.bin", bytes(data)))
    entries = tuple(_entry(name, recipe, module, tuple(goldens)) for name in recipe.entries)
    weights = None
    if recipe.updates is not None:
        fold = recipe.updates.fold
        if fold is not None:
            entries += (_entry("fold", fold, _module(fold, sources, fold_code, (), "fold"), ()),)
        weights = Weights(recipe.updates.tensors, None if fold is None else Fold("fold", recipe.updates.results))
    report = None
    if recipe.report is not None:
        report = len(sources)
        sources.append(FileSource.from_bytes("reports/passes.json", recipe.report))
    return Manifest(recipe.name, recipe.producer, constants, entries, report=report, weights=weights), sources


def _constant(weight: Weight, place: Placement | None) -> Constant:
    return Constant(
        name=weight.name,
        role="buffer" if weight.mutated else "parameter",
        sources=(weight.name,),
        dtype=DType.FLOAT32,
        shape=(len(weight.values),),
        stride=(1,),
        file=place.segment if place else None,
        offset=place.offset if place else None,
        nbytes=len(floats(*weight.values)),
        sha256=place.sha256 if place else None,
        mutated=weight.mutated,
    )


def _module(
    recipe: Recipe, sources: list[FileSource], code: bytes, constants: tuple[int, ...], name: str = "forward"
) -> Module:
    sources.append(FileSource.from_bytes(f"modules/{recipe.target}/{name}.so", code))
    return Module(
        target=recipe.target,
        abi_version=module_abi_version(),
        file=len(sources) - 1,
        constants=constants,
        imports=("alloc", "free", "fail", "seed"),
        kernels=(Kernel("kernel_0", ("aten.mul.Tensor", "aten.add.Tensor")),),
    )


def _entry(name: str, recipe: Recipe, module: Module, goldens: tuple[Golden, ...]) -> Entry:
    implementation = Implementation.of_module(module, len(recipe.inputs), len(recipe.outputs))
    return Entry(
        name=name,
        dims=recipe.dims,
        inputs=recipe.inputs,
        outputs=recipe.outputs,
        in_spec=recipe.in_spec,
        out_spec=recipe.out_spec,
        variants=tuple(
            Variant(item.name, item.guards, (implementation,), item.checks, item.same) for item in recipe.variants
        ),
        goldens=goldens,
    )


def make_archive(path: Path, recipe: Recipe, compile_c: CompileC) -> Path:
    """Writes the archive of a recipe."""
    fold = recipe.updates.fold if recipe.updates is not None else None
    fold_code = b"" if fold is None else compile_c(c_source(fold))
    manifest, sources = build_manifest(recipe, compile_c(c_source(recipe)), fold_code)
    write_archive(path, manifest, sources)
    return path
