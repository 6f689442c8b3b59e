"""The process without torch: an archive against ONNX Runtime. Prints JSON.

python -m tests.conformance.onnx_files.run CASE FILE.onnx ARCHIVE
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import numpy as np
import onnxruntime

import aotpack
from aotpack.errors import AotpackError
from aotpack.spec import DimRef, Signature
from tests.conformance.onnx_files.case import NEARBY, Array, FileCase, Sizes, default
from tests.conformance.onnx_files.cases import find

_SHAPE = tuple[int, ...]
# The least magnitude that differences are relative to: a sigmoid of ONNX Runtime is off by 1.5e-7 near 0.
_LEAST = 0.01


def _shapes(signature: Signature, sizes: Sizes) -> list[_SHAPE]:
    """Shapes of the inputs where dims have these sizes. Others have their least one that is at least 2."""
    given = {re.sub(r"\W", "_", name): size for name, size in sizes.items()}
    dims = {}
    for dim in signature.dims:
        step = dim.multiple_of
        least = max(dim.min, 2 if dim.max is None else min(2, dim.max))
        dims[dim.name] = given.get(dim.name, -(-least // step) * step)
    shapes = []
    for spec in signature.inputs:
        shape = []
        for size in spec.shape:
            if isinstance(size, DimRef):
                shape.append(size.mul * dims[size.dim] + size.add)
            elif isinstance(size, int):
                shape.append(size)
            else:
                raise ValueError(f"{spec.name} has the size {size}")
        shapes.append(tuple(shape))
    return shapes


def _error(found: Any, wanted: Any) -> tuple[float, str]:
    """The greatest difference relative to the greatest magnitude, and what else differs."""
    if isinstance(wanted, list):
        pairs = [_error(f, w) for f, w in zip(found, wanted, strict=True)]
        return max((e for e, _ in pairs), default=0.0), next((p for _, p in pairs if p), "")
    a, b = np.asarray(found), np.asarray(wanted)
    if a.dtype != b.dtype or a.shape != b.shape:
        return 0.0, f"{a.dtype}{list(a.shape)} instead of {b.dtype}{list(b.shape)}"
    if not b.size:
        return 0.0, ""
    if b.dtype.kind != "f":
        wrong = int((a != b).sum())
        return 0.0, f"{wrong} of {b.size} integers differ" if wrong else ""
    a, b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return 0.0, "infinities or NaNs differ"
    scale = max(np.abs(b[finite]).max(initial=0.0), _LEAST)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0) / scale), ""


def compare(case: FileCase, file: str, archive: str) -> dict[str, Any]:
    """Calls both; the results by call."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    infos = [info for info in session.get_inputs() if info.name not in case.constants]
    fixed = {
        info.name: np.asarray(json.loads(case.constants[info.name]), _dtype(info.type))
        for info in session.get_inputs()
        if info.name in case.constants
    }
    names = [info.name for info in session.get_outputs()]
    model = aotpack.load(archive, num_threads=2)
    generator = np.random.default_rng(0)
    calls = []
    for sizes in case.calls:
        shapes = _shapes(model.signature, sizes)
        inputs: dict[str, Array] = {}
        for info, spec, shape in zip(infos, model.signature.inputs, shapes, strict=True):
            inputs[info.name] = case.kinds.get(info.name, default)(generator, shape, spec.dtype.numpy_name)
        wanted = session.run(None, {**inputs, **fixed})
        start = time.perf_counter()
        try:
            results = model(*inputs.values())
        except AotpackError as error:
            calls.append({"shapes": shapes, "error": 0.0, "problem": f"{type(error).__name__}: {error}"[:300]})
            continue
        seconds = time.perf_counter() - start
        errors = [_error(results[name], value) for name, value in zip(names, wanted, strict=True)]
        problem = next((f"{name}: {text}" for name, (_, text) in zip(names, errors, strict=True) if text), "")
        near = {k: np.asarray(v * (1 + NEARBY), v.dtype) if v.dtype.kind == "f" else v for k, v in inputs.items()}
        moved = [_error(a, b)[0] for a, b in zip(session.run(None, {**near, **fixed}), wanted, strict=True)]
        calls.append(
            {
                "shapes": shapes,
                "error": max(e for e, _ in errors),
                "noise": max(moved),
                "problem": problem,
                "seconds": seconds,
            }
        )
    assert "torch" not in sys.modules, "the runtime imported torch"
    return {"signature": str(model.signature), "calls": calls}


def _dtype(text: str) -> str:
    """`tensor(float)` as a dtype of numpy."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return {"float": "float32", "double": "float64"}.get(name, name)


if __name__ == "__main__":
    print(json.dumps(compare(find(sys.argv[1]), sys.argv[2], sys.argv[3])))
