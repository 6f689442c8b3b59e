"""`from_onnx`: an ONNX model becomes a `Program`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from aotpack.errors import CaptureError, UnsupportedOperatorError
from aotpack.export.capture.models import aot_export
from aotpack.export.capture.variants import Variant, Variants
from aotpack.export.ir.program import Change, PassReport, Program
from aotpack.export.onnx import operators
from aotpack.export.onnx.base import dtypes
from aotpack.export.onnx.base.errors import OnnxError
from aotpack.export.onnx.base.graph import Graph
from aotpack.export.onnx.base.table import find
from aotpack.export.onnx.conditioning import with_sensitivity
from aotpack.export.onnx.example import example_call, symbolic_dims
from aotpack.export.onnx.module import OnnxModule
from aotpack.export.onnx.reading import ModelLike, OnnxModel, read_model
from aotpack.export.symbolic_shapes.declared import Note


@dataclass(frozen=True, eq=False)
class OnnxSource:
    """A model that is ready to be captured.

    Attributes:
        model: what was read.
        module: its graph as a module.
        args: an example call.
        shapes: the symbolic dims of the file, by parameter name: axis → name.
        made_up: whether the call consists of random numbers.
    """

    model: OnnxModel
    module: OnnxModule
    args: tuple[Any, ...]
    shapes: dict[str, dict[int, str]]
    made_up: bool = False


def from_onnx(
    model: ModelLike,
    args: Sequence[Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    sizes: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
    variants: Variants | Sequence[Mapping[str, int] | Variant] | None = None,
    entry: str | None = None,
) -> Program:
    """Captures an ONNX model (docs/onnx.md).

    Args:
        model: the path of an `.onnx` file, its bytes, or an `onnx.ModelProto`. Data in other files is read from the
            folder of the file.
        args: an example call: one tensor or array per input of the graph, in order; lists for sequences. By default
            random numbers, for integers 0 and 1.
        dynamic_shapes: as in `aot_export`, by the names of inputs. By default the symbolic dims of the file
            (`dim_param`) are dynamic, under their names; those that the model fixes become static, with a note.
        sizes: sizes of symbolic dims in the default example call.
        constants: values for inputs that the archive shall not have; keys are names of inputs. Some inputs of ONNX
            operators, such as axes, have to be known when the archive is built.
        variants, entry: as in `aot_export`.

    Returns a program whose inputs have the names of the graph's inputs. It returns a dict by the names of the graph's
    outputs.

    Raises:
        OnnxError: the model is malformed, or cannot be captured; the message names the node.
        UnsupportedOperatorError: it has operators that are not supported; all are listed.
        CaptureError: as `aot_export`.
        OSError: the file cannot be read.
    """
    source = load_onnx(model, args, sizes=sizes, constants=constants)
    return capture_onnx(source, dynamic_shapes=dynamic_shapes, variants=variants, entry=entry)


def load_onnx(
    model: ModelLike,
    args: Sequence[Any] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> OnnxSource:
    """Reads a model and makes its example call; see `from_onnx`."""
    read = read_model(model)
    check_operators(read)
    graph = read.graph
    fixed = {name: _constant(graph, name, value) for name, value in (constants or {}).items()}
    module = OnnxModule(graph, fixed)
    call = tuple(map(_argument, args)) if args is not None else example_call(graph, module.inputs, sizes or {})
    if len(call) != len(module.inputs):
        raise OnnxError(f"the model has {len(module.inputs)} inputs ({', '.join(module.inputs)}), got {len(call)}")
    return OnnxSource(read, module, call, symbolic_dims(graph, module, call), made_up=args is None)


def capture_onnx(
    source: OnnxSource,
    *,
    dynamic_shapes: Any = None,
    variants: Variants | Sequence[Mapping[str, int] | Variant] | None = None,
    entry: str | None = None,
) -> Program:
    """Captures a model that was read; see `from_onnx`."""
    how: dict[str, Any] = {"variants": variants, "entry": entry}
    if dynamic_shapes is None and source.shapes:
        program = _with_the_dims_of_the_file(source, how)
    else:
        names = dict(zip(source.module.inputs, source.module.parameter_names, strict=True))
        if isinstance(dynamic_shapes, Mapping):
            dynamic_shapes = {names.get(key, key): value for key, value in dynamic_shapes.items()}
        program = aot_export(source.module, source.args, dynamic_shapes=dynamic_shapes, **how)
    if source.made_up:
        program = with_sensitivity(program, source.module, source.args)
    return replace(program, name=source.model.name, reports=(_report(source), *program.reports))


def _report(source: OnnxSource) -> PassReport:
    """What the file says of itself, and the names of its inputs that are other names in Python."""
    model, module = source.model, source.module
    renamed = [
        (name, given) for name, given in zip(module.inputs, module.parameter_names, strict=True) if name != given
    ]
    opsets = [f"{domain} {version}".strip() for domain, version in sorted(model.versions.items())]
    summary = f"{model.metadata.get('producer_name') or 'an unknown producer'}, opset {', '.join(opsets)}"
    return PassReport(
        "import-onnx", summary, tuple(Change(given, f"is {name!r} in the file") for name, given in renamed)
    )


def _with_the_dims_of_the_file(source: OnnxSource, how: Mapping[str, Any]) -> Program:
    """Symbolic dims of files are often meant for some operators only: those that the model fixes become static."""
    try:
        program = aot_export(source.module, source.args, dynamic_shapes=source.shapes, **how)
        fixed = {dim.name for dim in program.signature.dims if dim.min == dim.max}
        if not fixed:
            return program
    except CaptureError as error:
        free = {name: dict.fromkeys(axes, "auto") for name, axes in source.shapes.items()}
        try:
            found = aot_export(source.module, source.args, dynamic_shapes=free)
        except CaptureError:
            raise error from None
        specs = {spec.name: spec for spec in found.signature.inputs}
        fixed = {
            dim
            for name, axes in source.shapes.items()
            for axis, dim in axes.items()
            if isinstance(specs[name].shape[axis], int)
        }
        if not fixed:
            raise
    left = {name: {axis: dim for axis, dim in axes.items() if dim not in fixed} for name, axes in source.shapes.items()}
    shapes = {name: axes for name, axes in left.items() if axes} or None
    program = aot_export(source.module, source.args, dynamic_shapes=shapes, **how)
    notes = tuple(Note(dim, "is fixed by the model to the size in the example call") for dim in sorted(fixed))
    return replace(program, notes=(*notes, *program.notes))


def check_operators(model: OnnxModel) -> None:
    """Refuses a model with operators that have no definition.

    Raises:
        UnsupportedOperatorError: all of them, with nodes and opsets.
    """
    operators.register()
    missing = [node for node in model.graph.all_nodes() if find(node.domain, node.op, node.version) is None]
    if not missing:
        return
    groups: dict[str, list[str]] = {}
    for node in missing:
        domain = f"{node.domain}." if node.domain else ""
        groups.setdefault(f"{domain}{node.op} (opset {node.version})", []).append(node.name)
    lines = [
        f"\n  - {name}: {', '.join(nodes[:5])}" + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
        for name, nodes in groups.items()
    ]
    raise UnsupportedOperatorError(
        f"the ONNX model has operators that are not supported:{''.join(lines)}",
        operators=tuple(groups),
        uses=tuple((f"{node.domain}.{node.op}".lstrip("."), node.name, "") for node in missing),
        hint="docs/onnx.md lists the operators",
    )


def _argument(value: Any) -> Any:
    if value is None:
        return None
    return [_argument(each) for each in value] if isinstance(value, (list, tuple)) else _tensor(value)


def _constant(graph: Graph, name: str, value: Any) -> torch.Tensor:
    if name not in graph.inputs:
        raise OnnxError(f"the model has no input {name!r}; it has {', '.join(graph.inputs) or 'none'}")
    tensor, proto = _tensor(value), graph.types[name]
    return tensor.to(dtypes.torch_dtype(proto.tensor_type.elem_type)) if proto.HasField("tensor_type") else tensor


def _tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return dtypes.from_numpy(np.array(value))
