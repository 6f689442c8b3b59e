"""What a user declares of sizes works for every declared size, or the capture fails with the model's line."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._inductor.codegen.cpp import CppKernel
from torch._inductor.virtualized import V
from transformers import BertConfig, BertModel

from aotpack import Dim
from aotpack.errors import CaptureError, LoweringError
from aotpack.export import aot_export
from aotpack.export.backends.cpu.lower import lower
from aotpack.export.driver.pipeline import select
from aotpack.export.ir.program import Program
from aotpack.export.passes.runner import run_passes
from aotpack.export.torch_compat.inductor import sizes
from aotpack.export.torch_compat.older_torch import sums_of_any_length
from aotpack.export.weights.identity import share_state
from tests.support.building import Build, assert_close
from tests.support.torch_version import VERSION

randn = torch.randn


def lowered_checks(program: Program) -> list[str]:
    """All checks of a program, those that code generation adds too."""
    (program,) = share_state([program])
    program = run_passes(program, select(()))
    return [check.text for check in (*program.checks, *lower(program, "x86-64-v3").checks)]


class Masked(nn.Module):
    """Attention whose tokens under the padding are set to zero, as transformers' mixtures of experts do."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        x = x.clone()
        x[~keep] = 0
        q = x.view(b, n, 2, 4).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, attn_mask=keep[:, None, None, :])
        return self.out(y.transpose(1, 2).reshape(b, n, -1))


class ViewedAttention(Masked):
    """The same without a copy: eager's fused attention leaves its result in the order that the view needs."""

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        b, n, _ = x.shape
        q = x.view(b, n, 2, 4).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, q, q, attn_mask=keep[:, None, None, :])
        return self.out(y.transpose(1, 2).view(b, n, -1))


@pytest.mark.parametrize("model", [Masked, ViewedAttention])
def test_masked_attention_from_batch_one_and_length_one(model: type[Masked]) -> None:
    b, n = Dim("b", 1, 8), Dim("n", 1, 16)
    keep = torch.tensor([[True] * 5, [True, True, True, False, False], [True, False, False, False, False]])
    program = aot_export(
        model().eval(), (randn(3, 5, 8), keep), dynamic_shapes={"x": {0: b, 1: n}, "keep": {0: b, 1: n}}
    )
    assert [str(dim) for dim in program.signature.dims] == ["b in [1, 8]", "n in [1, 16]"]
    assert not program.checks and not program.notes


class Encoder(nn.Module):
    """transformers' BERT with its mean pooling, as sentences are embedded."""

    def __init__(self) -> None:
        super().__init__()
        config = BertConfig(
            vocab_size=20,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=16,
        )
        self.bert = BertModel(config)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        y = self.bert(input_ids=x, attention_mask=keep).last_hidden_state
        return (y * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)


@pytest.fixture
def encoder() -> Any:
    """The model, the arguments of an example of batch 1, and their declared shapes."""
    b, n = Dim("b", 1, 8), Dim("n", 2, 16)
    arguments = (torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 5, dtype=torch.int64))
    return Encoder().eval(), arguments, {"x": {0: b, 1: n}, "keep": {0: b, 1: n}}


def test_an_example_of_batch_one_stands_for_all_batches(build: Build, encoder: Any) -> None:
    model, arguments, shapes = encoder
    runner = build(model, arguments, dynamic_shapes=shapes)
    for size in ((1, 5), (3, 5), (2, 2), (8, 16)):
        x, keep = torch.randint(0, 20, size), torch.ones(size, dtype=torch.int64)
        keep[-1, 1:] = 0
        assert_close(runner(x, keep), model(x, keep))


def test_code_for_the_sizes_of_the_example_alone_is_refused(encoder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, arguments, shapes = encoder
    # As torch has it: the lowering of views compares sizes as they are in the example.
    monkeypatch.setattr(sizes, "_of_all_sizes", lambda original: original)
    with pytest.raises(LoweringError, match=r"TorchInductor needs .*, which declared sizes violate: b = 2"):
        lowered_checks(aot_export(model, arguments, dynamic_shapes=shapes))


def padded(x: torch.Tensor) -> torch.Tensor:
    h = x.shape[1]
    return F.pad(x, (0, (8 - h % 8) % 8)).unfold(1, 8, 8).mean(-1)


def test_the_layout_of_a_result_is_no_guard() -> None:
    program = aot_export(padded, (randn(2, 21),), dynamic_shapes={"x": {1: Dim("h", 8, 99)}})
    assert str(program.signature.dims[0]) == "h in [8, 99]"
    assert lowered_checks(program) == []


def of_at_least_one(x: torch.Tensor) -> torch.Tensor:
    return x.max(0).values


def otherwise_for_none(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] > 0 else torch.ones(1, 4)


@pytest.mark.parametrize("model", [of_at_least_one, otherwise_for_none])
@pytest.mark.parametrize("dim", [Dim("n", 0, 8), Dim("n", min=0), 2 * Dim("n", 0, 8)])
def test_a_stated_zero_is_a_promise(model: Any, dim: Any) -> None:
    with pytest.raises(CaptureError, match="n = 0 does not work"):
        aot_export(model, (randn(4, 4),), dynamic_shapes={"x": {0: dim}})
    program = aot_export(model, (randn(4, 4),), dynamic_shapes={"x": {0: Dim("n", max=8)}})
    assert str(program.signature.dims[0]) == "n in [1, 8]"
    assert [note.subject for note in program.notes] == ["n"]


def test_a_stated_zero_works() -> None:
    for dim in (Dim("n", 0, 8), Dim("n", max=8)):
        program = aot_export(nn.Linear(4, 2), (randn(3, 4),), dynamic_shapes={"input": {0: dim}})
        assert str(program.signature.dims[0]) == "n in [0, 8]"
        assert not program.notes


# ---- relations ------------------------------------------------------------------------------------------------------


class Cache(nn.Module):
    """Writes rows into a cache from a place on, as decoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 16, 4))

    def forward(self, x: torch.Tensor, start: int) -> torch.Tensor:
        self.rows[:, start : start + x.shape[1]] = x
        return self.rows * 2


def test_a_cache_takes_single_rows_and_is_filled(build: Build) -> None:
    shapes = {"x": {1: Dim("n", 1, 8)}, "start": Dim("start", 0, 15)}
    archive, eager = build(Cache(), (randn(2, 3, 4), 5), dynamic_shapes=shapes), Cache()
    for n, start in [(8, 0), (8, 8), (1, 0), (1, 15), (2, 14), (3, 13), (1, 7), (8, 3)]:
        x = randn(2, n, 4)
        assert_close(archive(x, start), eager(x, start))
    with pytest.raises(ValueError, match="n"):
        archive(randn(2, 3, 4), 15)
    with pytest.raises(RuntimeError):
        eager(randn(2, 3, 4), 15)


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x + torch.as_tensor(x.shape[0] / 2)


def more_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.sum(0) if x.shape[0] > y.shape[0] else y.sum(0)


def viewed(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1, 4) * 2


def without_five(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.shape[0] != 5 else x


REFUSED = {
    "a size as a constant": (scaled, (randn(6, 3),), ({0: Dim("n", 1, 8)},), "as_tensor"),
    "a branch on two sizes": (more_rows, (randn(6, 3), randn(4, 3)), ({0: Dim("n", 1, 8)}, {0: Dim("m", 1, 8)}), ">"),
    "a multiple": (viewed, (randn(8),), ({0: Dim("n", 4, 64)},), "multiple of 4"),
    "a single size": (without_five, (randn(6, 3),), ({0: Dim("n", 1, 8)},), "!= 5"),
    "sizes that are equal or 1": (
        lambda x, y: x + y,
        (randn(6), randn(6)),
        ({0: Dim("n", 1, 8)}, {0: Dim("m", 1, 8)}),
        "==",
    ),
    "a slice of a table": (lambda x: x + torch.ones(16)[: x.shape[0]], (randn(6),), ({0: Dim("n", 1, 32)},), "ones"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_fewer_sizes_than_declared_are_an_error_with_the_line(name: str) -> None:
    function, args, shapes, said = REFUSED[name]
    with pytest.raises(CaptureError, match=rf"(?s){re.escape(said)}.*test_declared_sizes.py:\d+|test_declared.*{said}"):
        aot_export(function, args, dynamic_shapes=shapes)


@pytest.mark.parametrize("name", REFUSED)
def test_without_bounds_they_are_a_note_or_an_error(name: str) -> None:
    function, args, _, _ = REFUSED[name]
    names = iter("nm")
    try:
        program = aot_export(function, args, dynamic_shapes=tuple({0: next(names)} for _ in args))
    except CaptureError:
        return
    assert program.notes


def halved_and_doubled(x: torch.Tensor) -> torch.Tensor:
    half = F.avg_pool1d(x, 3, 2, 1)
    return half + F.interpolate(F.max_pool1d(half, 2), scale_factor=2)


def test_sizes_that_sympy_does_not_find_are_a_condition() -> None:
    program = aot_export(halved_and_doubled, (randn(2, 1, 32),), dynamic_shapes=({2: Dim("n")},))
    (check,) = program.checks
    assert "//" in check.text
    for size in (4, 16, 31):
        x = randn(2, 1, size)
        assert_close(program.runnable()(x)[0], halved_and_doubled(x))


def chunked(x: torch.Tensor) -> torch.Tensor:
    """As models with chunked scans write it."""
    missing = (4 - x.shape[1] % 4) % 4
    if missing > 0:
        x = F.pad(x, (0, missing))
    return x.unflatten(1, (-1, 4)).sum(-1)


def test_a_branch_that_skips_nothing() -> None:
    program = aot_export(chunked, (randn(2, 7),), dynamic_shapes={"x": {1: Dim("n", 1, 32)}})
    assert str(program.signature.dims[0]) == "n in [1, 32]" and not program.checks
    with pytest.raises(CaptureError, match="missing > 0"):
        aot_export(chunked, (randn(2, 8),), dynamic_shapes={"x": {1: Dim("n", 1, 32)}})


def test_sums_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch 2.11 makes a guard of whether a sum is longer than 4096 in the example."""
    asked = []

    def as_in_2_11(kernel: Any, reduction_type: str, dtype: torch.dtype, *_: Any) -> bool:
        asked.append(reduction_type)
        if reduction_type == "sum":
            V.graph.sizevars.check_leq(math.prod(kernel.call_ranges[kernel.reduction_depth :]), 4096)
        return False

    def model(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sum(), x.amax()

    program = aot_export(model, (randn(5, 7),), dynamic_shapes={"x": {0: Dim("n", 1, 5000), 1: Dim("m", 1, 5000)}})
    monkeypatch.setattr(CppKernel, "need_use_acc_helper", sums_of_any_length(as_in_2_11))
    assert lowered_checks(program) == []
    assert asked and "sum" not in asked
    monkeypatch.setattr(CppKernel, "need_use_acc_helper", as_in_2_11)
    if VERSION >= (2, 12):
        with pytest.raises(LoweringError, match="4096"):
            lowered_checks(program)
