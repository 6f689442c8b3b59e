"""The frozen archives of tests/data and the calls that were recorded with them. Imports no torch.

NAME.json beside an archive has `about` (where it was made) and `steps`, which run in order, in one context. A step is

- `{"call": entry, "args": tree, "kwargs": tree, "result": tree}`, with `args_after` where the call writes to its
  arguments, `same` where some of these are one array, as groups of their positions, and `state` where the model has
  some;
- `{"refused": "input" | "execution", "call": …}`, a call that fails with an error of this kind;
- `{"update": tree, "partial": bool}`, new weights; `{"reset": "weights"}`; `{"reset": "state"}`.

A code-only archive also has `pack`, a tree: the weights that are packed into it before the steps.

A tree is `{"array": name in NAME.npz, "dtype": …}`, `{"value": …}` or a container of trees: `{"list": […]}`,
`{"tuple": […]}`, `{"dict": [[key, tree]…]}`, `{"fields": [[name, tree]…]}` (a namedtuple).

`python -m tests.support.frozen ARCHIVE…` repeats the steps of archives, both ways, and fails if torch is imported.
"""

from __future__ import annotations

import json
import lzma
import os
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

import aotpack
from aotpack.archive import ArchiveReader, Manifest
from aotpack.errors import ExecutionError, InputError
from aotpack.runtime.packing import pack_weights
from aotpack.runtime.structure import flatten
from aotpack.spec import DictSpec, ListSpec, Spec, TensorLeaf, TupleSpec, ValueLeaf
from tests.support.c_api import CError, CModel
from tests.support.safetensors import write_safetensors

Array = npt.NDArray[Any]
DATA = Path(__file__).resolve().parent.parent / "data"
# The greatest error, relative to the greatest magnitude; other dtypes are equal.
TOLERANCES = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-4, "float64": 1e-6, "complex64": 1e-4}
_ERRORS = {"input": (InputError, "INVALID_ARGUMENT"), "execution": (ExecutionError, "EXECUTION_FAILED")}
_MISSING = object()


def names() -> list[str]:
    """All frozen archives, such as "format3/mlp"."""
    return sorted(str(path.relative_to(DATA).with_suffix("")) for path in DATA.glob("format*/*.json"))


def unpack(version: str, folder: Path) -> None:
    """Writes the archives of a set, such as "format3", to a folder."""
    with lzma.open(DATA / version / "archives.tar.xz") as stream, tarfile.open(fileobj=stream) as tar:
        # Python 3.11.4 is the first that knows filters.
        tar.extraction_filter = getattr(tarfile, "data_filter", None)
        tar.extractall(folder)


class Frozen:
    """What was recorded with an archive.

    Args:
        name: as `names` has it.
    """

    def __init__(self, name: str) -> None:
        recorded = json.loads((DATA / f"{name}.json").read_text())
        self.about: dict[str, Any] = recorded["about"]
        self._steps: list[dict[str, Any]] = recorded["steps"]
        self._pack: dict[str, Any] | None = recorded.get("pack")
        with np.load(DATA / f"{name}.npz") as arrays:
            self._arrays = dict(arrays)

    @property
    def is_code_only(self) -> bool:
        """Whether the archive runs only after weights are packed into it."""
        return self._pack is not None

    def ready(self, path: Path) -> Path:
        """The archive to run: `path` or, if it is code-only, one with the recorded weights in a folder beside it."""
        if self._pack is None:
            return path
        folder = path.parent / "packed"
        folder.mkdir(exist_ok=True)
        # Processes that do this at the same time write equal files.
        weights = write_safetensors(folder / f"{path.stem}.{os.getpid()}.safetensors", self._value(self._pack))
        pack_weights(path, weights, folder / path.name)
        return folder / path.name

    def entries(self) -> set[str]:
        """The names of the entries that are called with success."""
        return {step["call"] for step in self._steps if "result" in step}

    def repeat(self, interface: Interface) -> int:
        """Runs all steps, compares, and returns how many calls there were."""
        calls = 0
        for number, step in enumerate(self._steps):
            try:
                calls += self._repeat(interface, step)
            except AssertionError as error:
                error.add_note(f"step {number}: { ({k: v for k, v in step.items() if isinstance(v, (str, bool))}) }")
                raise
        return calls

    def _repeat(self, interface: Interface, step: Mapping[str, Any]) -> int:
        if "update" in step:
            interface.update(self._value(step["update"]), step["partial"])
        elif "reset" in step:
            interface.reset_weights() if step["reset"] == "weights" else interface.reset_state()
        elif "refused" in step:
            args, kwargs = self._value(step["args"]), self._value(step["kwargs"])
            refusal = interface.refusal(step["call"], args, kwargs)
            assert refusal == step["refused"], f"a call that must fail: {refusal}"
        else:
            args, kwargs = self._value(step["args"]), self._value(step["kwargs"])
            for first, *others in step.get("same", ()):
                for position in others:
                    args[position] = args[first]
            interface.call(step["call"], args, kwargs, self._value(step["result"]))
            # An argument that is not written to stays as it is.
            same(args, self._value(step.get("args_after", step["args"])), "the arguments after the call")
            if "state" in step:
                same(interface.state(), self._value(step["state"]), "the state")
            return 1
        return 0

    def _value(self, tree: Mapping[str, Any]) -> Any:
        if "array" in tree:
            array = self._arrays[tree["array"]]
            if array.dtype.name != tree["dtype"]:
                array = array.view(getattr(ml_dtypes, tree["dtype"]))
            return array.copy()
        if "value" in tree:
            return tree["value"]
        ((kind, items),) = tree.items()
        if kind == "list":
            return [self._value(item) for item in items]
        if kind == "tuple":
            return tuple(self._value(item) for item in items)
        values = {key: self._value(item) for key, item in items}
        return SimpleNamespace(**values) if kind == "fields" else values


class Interface(Protocol):
    """A way to run an archive."""

    def call(self, entry: str, args: list[Any], kwargs: dict[str, Any], expected: Any) -> None: ...
    def refusal(self, entry: str, args: list[Any], kwargs: dict[str, Any]) -> str | None: ...
    def state(self) -> dict[str, Array]: ...
    def update(self, weights: dict[str, Array], partial: bool) -> None: ...
    def reset_state(self) -> None: ...
    def reset_weights(self) -> None: ...


class InPython:
    """`aotpack.load` and calls with the model's own arguments."""

    def __init__(self, path: Path) -> None:
        self._model = aotpack.load(path, verify="full")
        self._context = self._model.context()

    def call(self, entry: str, args: list[Any], kwargs: dict[str, Any], expected: Any) -> None:
        same(self._context.entry(entry)(*args, **kwargs), expected, "the result")

    def refusal(self, entry: str, args: list[Any], kwargs: dict[str, Any]) -> str | None:
        try:
            self._context.entry(entry)(*args, **kwargs)
        except (InputError, ExecutionError) as error:
            return next(kind for kind, (cls, _) in _ERRORS.items() if isinstance(error, cls))
        return None

    def state(self) -> dict[str, Array]:
        return {name: np.asarray(value) for name, value in self._context.state().items()}

    def update(self, weights: dict[str, Array], partial: bool) -> None:
        self._model.update_weights(weights, partial=partial)

    def reset_state(self) -> None:
        self._context.reset()

    def reset_weights(self) -> None:
        self._model.reset_weights()


class InC:
    """The C interface, with the tensors in the places that the manifest says."""

    def __init__(self, path: Path) -> None:
        self._model = CModel(path)
        with ArchiveReader(path) as reader:
            self._manifest: Manifest = reader.manifest

    def _run(self, entry: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Array], Spec]:
        description = self._manifest.entry(entry)
        assert description is not None, entry
        signature = description.signature
        given = flatten(signature.in_spec, args, kwargs)
        inputs = [
            value if isinstance(value, np.ndarray) else np.array(value, spec.dtype.numpy_name)
            for value, spec in zip(given, signature.inputs, strict=True)
        ]
        return self._model.run(entry, inputs), signature.out_spec

    def call(self, entry: str, args: list[Any], kwargs: dict[str, Any], expected: Any) -> None:
        outputs, spec = self._run(entry, args, kwargs)
        wanted: dict[int, Any] = {}
        _leaves(spec, expected, wanted)
        assert sorted(wanted) == list(range(len(outputs)))
        for index, output in enumerate(outputs):
            same(output, np.asarray(wanted[index]), f"output {index}")

    def refusal(self, entry: str, args: list[Any], kwargs: dict[str, Any]) -> str | None:
        try:
            self._run(entry, args, kwargs)
        except CError as error:
            return next(kind for kind, (_, code) in _ERRORS.items() if error.code == code)
        return None

    def state(self) -> dict[str, Array]:
        mutated = [constant.name for constant in self._manifest.constants if constant.mutated]
        return dict(zip(mutated, self._model.state(), strict=True))

    def update(self, weights: dict[str, Array], partial: bool) -> None:
        self._model.update_weights(weights, partial=partial)

    def reset_state(self) -> None:
        self._model.reset_state()

    def reset_weights(self) -> None:
        self._model.reset_weights()


def _leaves(spec: Spec, value: Any, found: dict[int, Any]) -> None:
    """The values at the places of tensors, by their indices."""
    match spec:
        case TensorLeaf(index):
            found[index] = value
        case ValueLeaf(constant):
            assert value == constant
        case TupleSpec(items) | ListSpec(items):
            for item, part in zip(items, value, strict=True):
                _leaves(item, part, found)
        case DictSpec(keys, items):
            assert list(keys) == list(value)
            for key, item in zip(keys, items, strict=True):
                _leaves(item, value[key], found)
        case _:
            for key, item in zip(spec.keys, spec.items, strict=True):
                _leaves(item, getattr(value, key), found)


def same(actual: Any, expected: Any, what: str) -> None:
    """Fails unless the values have one structure, equal numbers, and arrays within the tolerance of their dtype."""
    if isinstance(expected, np.ndarray):
        _same_array(np.asarray(actual), expected, what)
    elif isinstance(expected, Mapping):
        assert list(actual) == list(expected), f"{what}: keys {list(actual)} instead of {list(expected)}"
        for key, value in expected.items():
            same(actual[key], value, f"{what}[{key!r}]")
    elif isinstance(expected, SimpleNamespace):
        for key, value in vars(expected).items():
            same(getattr(actual, key, _MISSING), value, f"{what}.{key}")
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        assert type(actual) is type(expected), f"{what}: {type(actual)} instead of {type(expected)}"
        assert len(actual) == len(expected), f"{what}: {len(actual)} items instead of {len(expected)}"
        for index, (got, value) in enumerate(zip(actual, expected, strict=True)):
            same(got, value, f"{what}[{index}]")
    else:
        assert type(actual) is type(expected), f"{what}: {type(actual)} instead of {type(expected)}"
        assert actual == expected, f"{what}: {actual!r} instead of {expected!r}"


def _same_array(actual: Array, expected: Array, what: str) -> None:
    name = expected.dtype.name
    assert (actual.dtype.name, actual.shape) == (name, expected.shape), f"{what}: {actual.dtype} {actual.shape}"
    if name not in TOLERANCES or expected.size == 0:
        assert actual.tobytes() == expected.tobytes(), f"{what}: {actual} instead of {expected}"
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    wanted, got = expected.astype(wide), actual.astype(wide)
    assert np.isfinite(wanted).all(), f"{what}: recorded values must be finite"
    error = np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30)
    assert error <= TOLERANCES[name], f"{what}: relative error {error:.3g}"


def main() -> None:
    for argument in sys.argv[1:]:
        path = Path(argument)
        frozen = Frozen(f"{path.parent.name}/{path.stem}")
        ready = frozen.ready(path)
        counts = [frozen.repeat(interface(ready)) for interface in (InPython, InC)]
        print(f"{path.parent.name}/{path.stem}: {counts[0]} calls in Python, {counts[1]} in C")
    assert "torch" not in sys.modules, "torch was imported"


if __name__ == "__main__":
    main()
