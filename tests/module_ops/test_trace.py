"""What operators note about their calls: operands as given, and whether they had to be laid out anew."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from aotpack.export.ops.weight_packing import pack_conv, pack_linear
from tests.module_ops.harness import Driver

Call = dict[str, Any]


class Notes:
    """The lines that operators append, as dictionaries."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def take(self) -> list[Call]:
        calls = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.path.unlink(missing_ok=True)
        return calls

    def one(self) -> Call:
        [call] = self.take()
        return call


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Notes:
    path = tmp_path / "trace.jsonl"
    monkeypatch.setenv("AOTPACK_TRACE_FILE", str(path))
    return Notes(path)


def relaid(call: Call) -> dict[str, int]:
    return {tensor["role"]: tensor["relaid"] for tensor in call["tensors"]}


def packed_conv(driver: Driver, x: torch.Tensor, residual: torch.Tensor | None = None) -> None:
    weight = pack_conv(torch.randn(8, x.shape[1], 3, 3, dtype=x.dtype), 1, False)
    lists = [3, 3, 1, 1, 1, 1, 1, 1, 0, 0]
    driver("packed_conv", [x, weight, torch.randn(8, dtype=x.dtype), residual], [8, 0, 1, 0, *lists])


def test_convolution_lays_out_what_is_not_channels_last(kernel_driver: Driver, notes: Notes) -> None:
    plain = torch.randn(2, 5, 6, 7)
    packed_conv(kernel_driver, plain)
    assert relaid(notes.one()) == {"weight": 0, "x": 0, "bias": 0}  # few channels are read from their planes
    strided = torch.randn(2, 5, 6, 14)[..., ::2]
    packed_conv(kernel_driver, strided)
    call = notes.one()
    assert call["op"] == "packed_conv"
    assert relaid(call) == {"weight": 0, "x": 1, "bias": 0}
    x = next(tensor for tensor in call["tensors"] if tensor["role"] == "x")
    assert x == {
        "role": "x",
        "dtype": "float32",
        "sizes": [2, 5, 6, 7],
        "strides": [5 * 6 * 14, 6 * 14, 14, 2],
        "relaid": 1,
    }
    last = plain.to(memory_format=torch.channels_last).bfloat16()
    packed_conv(kernel_driver, last, torch.randn(2, 8, 6, 7, dtype=torch.bfloat16))
    call = notes.one()
    assert relaid(call) == {"weight": 0, "x": 0, "bias": 0, "residual": 1}
    assert {tensor["dtype"] for tensor in call["tensors"]} == {"bfloat16"}


def test_a_computed_weight_is_packed_on_every_call(kernel_driver: Driver, notes: Notes) -> None:
    x, weight = torch.randn(1, 17, 6, 6), torch.randn(8, 17, 3, 3)
    kernel_driver("convolution", [x, weight], [0, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    assert relaid(notes.one()) == {"weight": 1, "x": 1, "result": 1}
    last = x.to(memory_format=torch.channels_last)
    kernel_driver("convolution", [last, weight], [0, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    assert relaid(notes.one()) == {"weight": 1, "x": 0}


def test_linear_reads_rows_of_any_stride(kernel_driver: Driver, notes: Notes) -> None:
    weight, x = pack_linear(torch.randn(9, 6)), torch.randn(4, 5, 12)
    kernel_driver("packed_linear", [x[..., :6], weight, torch.randn(9)], [9, 0])
    assert relaid(notes.one()) == {"x": 0, "weight": 0, "bias": 0}
    kernel_driver("packed_linear", [torch.randn(6, 4).t(), weight, torch.randn(18)[::2]], [9, 0])
    assert relaid(notes.one()) == {"x": 1, "weight": 0, "bias": 1}


def test_products_read_operands_where_they_lie(kernel_driver: Driver, notes: Notes) -> None:
    a, b = torch.randn(3, 4, dtype=torch.half), torch.randn(5, 4, dtype=torch.half).t()
    kernel_driver("mm", [torch.empty(3, 5, dtype=torch.half), a, b])
    kernel_driver("addmm", [torch.empty(3, 5, dtype=torch.half), torch.zeros(5, dtype=torch.half), a, b], real=1.0)
    mm, addmm = notes.take()
    assert (mm["op"], relaid(mm)) == ("mm", {"mat1": 0, "mat2": 0})
    assert (addmm["op"], relaid(addmm)) == ("addmm", {"self": 0, "mat1": 0, "mat2": 0})


def test_attention_lays_out_scattered_heads(kernel_driver: Driver, notes: Notes) -> None:
    q, k, v = torch.randn(3, 1, 6, 2, 8).transpose(2, 3)
    kernel_driver("attention", [q, k, v], [0], real=0.3)
    assert relaid(notes.one()) == {"q": 0, "k": 0, "v": 0}
    kernel_driver("attention", [q, k.transpose(2, 3).contiguous().transpose(2, 3), v], [1], real=0.3)
    assert relaid(notes.one()) == {"q": 0, "k": 1, "v": 0}


def test_tables_and_recurrent_weights_stay_where_they_are(kernel_driver: Driver, notes: Notes) -> None:
    table, ids, offsets = torch.randn(6, 10).t(), torch.tensor([[1, 2], [3, 4]]).t(), torch.tensor([0, 2])
    kernel_driver("packed_embedding", [pack_linear(table), ids], [10])
    assert relaid(notes.one()) == {"weight": 0, "indices": 1}
    kernel_driver("embedding_bag", [table, ids[0].clone(), offsets], [0, 0, -1])
    assert relaid(notes.one()) == {"weight": 1, "indices": 0, "offsets": 0}
    hidden, weight = torch.randn(2, 8), pack_linear(torch.randn(24, 8))
    kernel_driver("gru_layer", [torch.randn(2, 5, 8).transpose(0, 1), weight, weight, None, None, hidden], [8, 0])
    assert relaid(notes.one()) == {"x": 0, "w_ih": 0, "w_hh": 0, "h0": 0}


def test_copies_count_as_such(kernel_driver: Driver, notes: Notes) -> None:
    kernel_driver("to_layout", [torch.randn(2, 3, 4, 5)], [0, 2, 3, 1])
    kernel_driver("pack_linear", [torch.randn(3, 4)])
    kernel_driver("pack_conv", [torch.randn(3, 4, 1)], [1, 0])
    calls = notes.take()
    assert [(call["op"], relaid(call)) for call in calls] == [
        ("to_layout", {"x": 1}),
        ("pack_linear", {"weight": 1}),
        ("pack_conv", {"weight": 1}),
    ]


def test_lines_of_processes_stay_whole(kernel_driver: Driver, notes: Notes) -> None:
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                for _ in range(200):
                    kernel_driver("to_layout", [torch.zeros(1, 1, 1, 1)], [0, 1, 2, 3])
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    assert [call["op"] for call in notes.take()] == ["to_layout"] * 600


def test_without_a_file_nothing_is_written(
    kernel_driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTPACK_TRACE_FILE", raising=False)
    kernel_driver("pack_linear", [torch.randn(3, 4)])
    assert list(tmp_path.iterdir()) == []
