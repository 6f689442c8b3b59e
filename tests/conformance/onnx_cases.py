"""The cases of onnx's own backend test suite, as tensors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from aotpack.export.onnx.base import dtypes

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


@dataclass(frozen=True)
class OnnxCase:
    """A model with example calls.

    Attributes:
        name, kind: of the suite.
        model: the model.
        sets: inputs and expected outputs as the suite has them.
        rtol, atol: of the suite.
    """

    name: str
    kind: str
    model: onnx.ModelProto
    sets: list[tuple[list[Any], list[Any]]]
    rtol: float
    atol: float

    @property
    def is_random(self) -> bool:
        """Whether the results depend on a generator that ONNX leaves open."""
        return "bernoulli" in self.name or ("training_dropout" in self.name and "zero_ratio" not in self.name)

    @property
    def is_numeric(self) -> bool:
        """Whether results can be compared: none is random, and neither inputs nor outputs nor constants are strings."""
        if self.is_random:
            return False
        text = onnx.TensorProto.STRING
        values = [*self.model.graph.input, *self.model.graph.output]
        return not any(_element_type(v.type) == text for v in values) and not any(
            t.data_type == text for t in self.model.graph.initializer
        )

    @property
    def operators(self) -> list[str]:
        """The operators of the graph, by name."""
        return sorted({f"{n.domain}.{n.op_type}".lstrip(".") for n in self.model.graph.node})


def _element_type(proto: onnx.TypeProto) -> int:
    match proto.WhichOneof("value"):
        case "tensor_type":
            return proto.tensor_type.elem_type
        case "sequence_type":
            return _element_type(proto.sequence_type.elem_type)
        case "optional_type":
            return _element_type(proto.optional_type.elem_type)
    return 0


@lru_cache(maxsize=1)
def cases() -> dict[str, OnnxCase]:
    """All cases by name."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for test in load_model_tests(kind=kind):
                if test.model is not None:
                    found[test.name] = OnnxCase(test.name, kind, test.model, test.data_sets, test.rtol, _atol(test))
                else:
                    folder = Path(test.model_dir)
                    model = onnx.load(folder / "model.onnx")
                    sets = [_read(each, model) for each in sorted(folder.glob("test_data_set_*"))]
                    found[test.name] = OnnxCase(test.name, kind, model, sets, test.rtol, _atol(test))
    return found


def _atol(test: Any) -> float:
    """The absolute tolerance of the suite; of Fourier transforms one unit in the last place of float32 at the largest
    magnitude: their sums cancel where the result is small.
    """
    if "dft" not in test.name or not test.data_sets:
        return float(test.atol)
    largest = max(float(np.abs(np.asarray(v)).max()) for _, outputs in test.data_sets for v in outputs)
    return max(float(test.atol), 2**-24 * largest)


def _read(folder: Path, model: onnx.ModelProto) -> tuple[list[Any], list[Any]]:
    def values(prefix: str, infos: Any) -> list[Any]:
        result = []
        for i, info in enumerate(infos):
            path = folder / f"{prefix}_{i}.pb"
            if not path.exists():
                break
            data = path.read_bytes()
            if info.type.HasField("sequence_type"):
                result.append(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
            elif info.type.HasField("optional_type"):
                result.append(numpy_helper.to_optional(onnx.OptionalProto.FromString(data)))
            else:
                result.append(numpy_helper.to_array(onnx.TensorProto.FromString(data)))
        return result

    constants = {tensor.name for tensor in model.graph.initializer}
    inputs = [info for info in model.graph.input if info.name not in constants]
    given = values("input", model.graph.input if len(list(folder.glob("input_*.pb"))) > len(inputs) else inputs)
    return given, values("output", model.graph.output)


def tensor(value: Any) -> Any:
    """What the suite has, as a tensor; lists and None stay what they are."""
    if isinstance(value, (list, tuple)):
        return [tensor(each) for each in value]
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    if value is None or (isinstance(value, np.ndarray) and value.dtype == object and value.ndim == 0):
        return None
    return dtypes.from_numpy(np.array(value))


_HALVES = {torch.bfloat16: 2**-6, torch.float16: 2**-9}


def mismatch(found: Any, expected: Any, rtol: float, atol: float, where: str = "output") -> str | None:
    """Why a value is not the expected one, by the rules of the suite; None if it is."""
    if expected is None or found is None:
        return None if expected is found else f"{where} is {type(found).__name__}"
    if isinstance(expected, list):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            return f"{where} is not a list of {len(expected)}"
        pairs = enumerate(zip(found, expected, strict=True))
        return next((m for i, (f, e) in pairs if (m := mismatch(f, e, rtol, atol, f"{where}[{i}]"))), None)
    if found.dtype != expected.dtype:
        return f"{where} is {found.dtype}, not {expected.dtype}"
    if found.shape != expected.shape:
        return f"{where} is {list(found.shape)}, not {list(expected.shape)}"
    if expected.dtype.itemsize == 1 or expected.dtype in _HALVES:
        # Two units in the last place: the suite's reference rounds after each step.
        rtol = max(rtol, _HALVES.get(expected.dtype, 0.0))
        found, expected = found.float(), expected.float()
    wide = torch.complex128 if expected.is_complex() else torch.float64
    if not expected.is_floating_point() and not expected.is_complex():
        exact = torch.equal(found, expected)
        if exact:
            return None
    a, b = found.to(wide), expected.to(wide)
    if torch.allclose(a, b, rtol=rtol, atol=atol, equal_nan=True):
        return None
    difference = (a - b).abs().nan_to_num(torch.inf).max().item()
    return f"{where} differs by {difference:.3g}"
