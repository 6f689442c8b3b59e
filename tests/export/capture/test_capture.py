"""Capture: signatures, structures, dims, and the errors that a user meets."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from aotpack.errors import CaptureError
from aotpack.export import aot_export, load_exported
from aotpack.spec import (
    DataclassSpec,
    DictSpec,
    DimRef,
    DType,
    Expr,
    ListSpec,
    NamedTupleSpec,
    TensorLeaf,
    TupleSpec,
    ValueLeaf,
)
from tests.export.conftest import Build, assert_close


@dataclasses.dataclass
class Batch:
    ids: Tensor
    scale: Tensor


@dataclasses.dataclass
class Result:
    score: Tensor
    extra: Tensor


Pair = namedtuple("Pair", ["left", "right"])


class Structured(nn.Module):
    def forward(
        self, batch: Batch, states: list[Tensor], flag: bool, *, extra: dict[str, Tensor], note: str | None = None
    ) -> dict[str, Any]:
        y = batch.ids * batch.scale + states[0] - states[1]
        if flag:
            y = y * 2
        return {"result": Result(y, y.sum()), "pair": Pair(extra["a"] + 1, None), "list": [y, (extra["b"], 3)]}


def structured_call() -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = (Batch(torch.randn(2, 3), torch.randn(3)), [torch.randn(2, 3), torch.ones(3)], True)
    return args, {"extra": {"a": torch.randn(4), "b": torch.randn(1)}}


def test_nested_structures_are_described() -> None:
    args, kwargs = structured_call()
    signature = aot_export(Structured(), args, kwargs).signature
    names = ["batch.ids", "batch.scale", "states.0", "states.1", "extra.a", "extra.b"]
    assert [spec.name for spec in signature.inputs] == names
    batch, states, flag = signature.in_spec.args
    assert isinstance(batch, DataclassSpec) and batch.keys == ("ids", "scale") and batch.type.endswith(":Batch")
    assert isinstance(states, ListSpec) and flag == ValueLeaf(True)
    assert signature.in_spec.names == ("batch", "states", "flag")
    assert signature.in_spec.kwargs_keys == ("extra",)
    assert isinstance(signature.in_spec.kwargs_items[0], DictSpec)
    result = signature.out_spec
    assert isinstance(result, DictSpec) and result.keys == ("result", "pair", "list")
    score, pair, items = result.items
    assert isinstance(score, DataclassSpec) and isinstance(pair, NamedTupleSpec) and isinstance(items, ListSpec)
    assert pair.items[1] == ValueLeaf(None)
    assert isinstance(items.items[1], TupleSpec) and items.items[1].items[1] == ValueLeaf(3)


def test_nested_structures_run(build: Build) -> None:
    args, kwargs = structured_call()
    archive = build(Structured(), args, kwargs)
    expected = Structured()(*args, **kwargs)
    result = archive(*args, **kwargs)
    assert_close(result["result"].score, expected["result"].score)
    assert_close(result["pair"].left, expected["pair"].left)
    assert result["pair"].right is None and result["list"][1][1] == 3
    assert_close(result["list"][1][0], expected["list"][1][0])


def test_functions_are_captured_by_their_parameter_names() -> None:
    def scaled(x: Tensor, factor: Tensor) -> Tensor:
        return x * factor

    program = aot_export(
        scaled, (torch.randn(3, 4), torch.randn(4)), dynamic_shapes={"x": {0: Dim("rows")}, "factor": None}
    )
    assert program.name == "scaled"
    assert [spec.name for spec in program.signature.inputs] == ["x", "factor"]
    assert program.signature.inputs[0].shape == (DimRef("rows"), 4)


def test_dims_keep_names_ranges_and_relations() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return torch.cat([x, x]), y[::3]

    batch = Dim("batch", min=2, max=64)
    signature = aot_export(
        Model(), (torch.randn(4, 3), torch.randn(8)), dynamic_shapes={"x": {0: batch}, "y": {0: 2 * batch}}
    ).signature
    (dim,) = signature.dims
    assert (dim.name, dim.min, dim.max) == ("batch", 2, 64)
    assert signature.inputs[1].shape == (DimRef("batch", 2, 0),)
    assert signature.outputs[0].shape == (DimRef("batch", 2, 0), 3)
    assert isinstance(signature.outputs[1].shape[0], Expr)


def test_layouts_of_inputs_are_recorded() -> None:
    channels_last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    program = aot_export(lambda x, y: (x + 1, y + 1), (channels_last, torch.randn(6, 4)[:, ::2]))
    assert program.signature.inputs[0].order == (0, 2, 3, 1)
    assert program.signature.inputs[1].order == (0, 1)
    assert program.signature.outputs[0].order == (0, 2, 3, 1)


def test_outputs_may_be_inputs_constants_or_repeated(build: Build) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3))

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            y = x + 1
            return x, self.weight, y, y, y[1:]

    model = Model().eval()
    x = torch.randn(3)
    archive = build(model, (x,))
    first = archive(x)
    assert_close(first, model(x))
    first[1].fill_(7)
    first[2].fill_(9)
    assert_close(archive(x), model(x))


def test_exported_programs_are_loaded(tmp_path: Path, build: Build) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    exported = torch.export.export(model, (torch.randn(2, 4),), dynamic_shapes={"input": {0: Dim("batch", max=9)}})
    torch.export.save(exported, tmp_path / "model.pt2")
    program = load_exported(tmp_path / "model.pt2")
    assert program.name == "model"
    assert program.signature.inputs[0].name == "input"
    assert isinstance(program.signature.inputs[0].shape[0], DimRef)
    (tmp_path / "bad.pt2").write_bytes(b"nothing of the kind")
    with pytest.raises(CaptureError, match="not an exported program but a file of an unknown format"):
        load_exported(tmp_path / "bad.pt2")


def test_dtypes_are_mapped() -> None:
    for dtype, expected in ((torch.bfloat16, DType.BFLOAT16), (torch.int8, DType.INT8), (torch.bool, DType.BOOL)):
        program = aot_export(lambda x: x.clone(), (torch.zeros(2, dtype=dtype),))
        assert program.signature.inputs[0].dtype is expected


def test_state_is_put_back_after_the_example_call() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x + self.count

    model = Counter()
    program = aot_export(model, (torch.zeros(1),))
    assert model.count.item() == 0
    assert program.constants["count"].mutated and program.reference is not None


class TestErrors:
    def test_control_flow_on_values_names_the_line_and_the_way_out(self) -> None:
        class Branching(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                if x.sum() > 0:  # the line
                    return x + 1
                return x - 1

        with pytest.raises(CaptureError) as caught:
            aot_export(Branching(), (torch.randn(3),))
        assert "test_capture.py" in str(caught.value) and "if x.sum() > 0" in str(caught.value)
        assert "torch.where" in str(caught.value.hint)

    def test_a_failing_example_call_says_so(self) -> None:
        with pytest.raises(CaptureError, match="the example call itself fails"):
            aot_export(nn.Linear(4, 3), (torch.randn(2, 5),))

    def test_a_specialized_dim_is_refused(self) -> None:
        with pytest.raises(CaptureError, match="batch"):
            aot_export(lambda x: x + torch.ones(4, 1), (torch.randn(4, 2),), dynamic_shapes={"x": {0: Dim("batch")}})

    def test_wrong_arguments(self) -> None:
        with pytest.raises(CaptureError, match="must be a tuple"):
            aot_export(nn.ReLU(), torch.randn(3))  # type: ignore[arg-type]
        with pytest.raises(CaptureError, match="mode 'train'"):
            aot_export(nn.ReLU(), (torch.randn(3),), mode="train")
        with pytest.raises(CaptureError, match=r"sparse|dtype|cannot"):
            aot_export(lambda x: x, (torch.zeros(3, dtype=torch.complex32),))

    def test_results_must_be_describable(self) -> None:
        with pytest.raises(CaptureError):
            aot_export(lambda x: (x, object()), (torch.randn(4),))

    def test_dicts_need_keys_that_archives_have(self) -> None:
        with pytest.raises(CaptureError, match="keys must be strings"):
            aot_export(lambda x: {1.5: x + 1}, (torch.randn(3),))


def test_leaves_are_numbered_in_order() -> None:
    program = aot_export(lambda a, b: (b + a, a * 2), (torch.randn(2), torch.randn(2)))
    assert program.signature.in_spec.args == (TensorLeaf(0), TensorLeaf(1))
