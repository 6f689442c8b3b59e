"""flex_attention through archives: the functions and block masks of real models, compared with eager in double."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

import aotpack
from aotpack import Dim
from aotpack.errors import CaptureError, ExecutionError
from aotpack.export import BuildOptions, aot_export, build_archive
from tests.export.conftest import Build, check
from tests.support.building import assert_close, in_double

LENGTH, HEADS = 150, 4


def stored(function: Any, size: tuple[int, int], heads: int | None = None) -> BlockMask:
    return create_block_mask(function, None, heads, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=size)


class Functions(nn.Module):
    """What models do to scores: each with a block mask, without, or both."""

    def __init__(self) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.rand(HEADS))
        self.bias = nn.Parameter(torch.randn(HEADS, 2 * LENGTH))
        self.register_buffer("prefix", torch.tensor([5, 0, 40]))
        self.window = stored(lambda b, h, i, j: (i >= j) & (i - j < 50), (64, 16))
        self.by_head = stored(
            lambda b, h, i, j: torch.where(h % 2 == 0, (i // 7) == (j // 7), (i - j).abs() <= 20 + 3 * h),
            (8, 24),
            HEADS,
        )
        # Whole blocks of rows that look at nothing, and one row among others.
        self.some_rows = stored(lambda b, h, i, j: (i >= 70) & (i != 100) & (j < 90), (32, 32))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> dict[str, Any]:
        slopes, bias, prefix = self.slopes, self.bias, self.prefix

        def alibi(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s + slopes[h] * (j - i)

        def capped(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return 2 * torch.tanh(s / 2)

        def biased(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s * 1.5 + bias[h, i - j + LENGTH]

        def documents(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return ((i >= j) | (j < prefix[b])) & (document[b, i] == document[b, j])

        def in_function(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return torch.where((i >= j) & (i - j < 9) | (j == b), s + 0.1 * (i - j), -torch.inf)

        mask = create_block_mask(documents, q.shape[0], None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=32)
        one = k[:, :1], v[:, :1]
        aux = AuxRequest(lse=True)
        return {
            "plain": flex_attention(q, k, v),
            "window": flex_attention(q, k, v, block_mask=self.window),
            "capped": flex_attention(q, k, v, score_mod=capped, scale=0.7, return_lse=True),
            "biased": flex_attention(q[:, :, :100], k, v, score_mod=biased),
            "biased window": flex_attention(q, k, v, score_mod=biased, block_mask=self.window),
            "documents": flex_attention(q, k, v, block_mask=mask, return_aux=aux),
            "capped documents": flex_attention(q, k, v, score_mod=capped, block_mask=mask),
            "by head": flex_attention(q, k, v, block_mask=self.by_head),
            "in function": flex_attention(q, k, v, score_mod=in_function),
            "grouped": flex_attention(q, *one, score_mod=alibi, block_mask=mask, enable_gqa=True),
            "some rows": flex_attention(q, k, v, score_mod=alibi, block_mask=self.some_rows, return_aux=aux),
            "few queries": flex_attention(q[:, :, :3], *one, score_mod=alibi, enable_gqa=True),
            "one query": flex_attention(q[:, :, -1:], k, v, score_mod=biased),
        }


def heads(batch: int, length: int = LENGTH, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    q, k = (torch.randn(batch, HEADS, length, 24, dtype=dtype) for _ in range(2))
    return q, k, torch.randn(batch, HEADS, length, 40, dtype=dtype), torch.randint(0, 4, (batch, length)).sort().values


@pytest.fixture(scope="module")
def functions() -> Functions:
    torch.manual_seed(0)
    return Functions().eval()


def test_functions_and_masks_answer_as_eager(functions: Functions, build: Build) -> None:
    batch = Dim("batch", min=1, max=3)
    archive = build(functions, heads(2), dynamic_shapes=[{0: batch}] * 4, any_size=False)
    check(archive, functions, heads(2), heads(1), heads(3))


class Lengths(nn.Module):
    """Lengths of queries and keys that vary, in several dtypes; blocks and an offset come from outside."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, blocks: tuple[Tensor, ...], offset: int) -> list[Tensor]:
        sizes = q.shape[2], k.shape[2]

        def near(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return i + offset >= j

        def relative(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return s - (i - j + offset).abs().clamp(max=40) * 0.05 * (1 + h)

        mask = BlockMask.from_kv_blocks(*blocks, BLOCK_SIZE=16, mask_mod=near, seq_lengths=sizes)
        return [
            flex_attention(q, k, v, score_mod=relative, block_mask=mask),
            flex_attention(q.double(), k.double(), v.double(), score_mod=relative, block_mask=mask),
            flex_attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), score_mod=relative, block_mask=mask),
            flex_attention(q.half(), k.half(), v.half(), block_mask=mask),
        ]


def lengths(batch: int, queries: int, keys: int, offset: int) -> tuple[Any, ...]:
    q, k = torch.randn(batch, 2, queries, 8), torch.randn(batch, 2, keys, 8)
    mask = create_block_mask(lambda b, h, i, j: i + offset >= j, None, None, queries, keys, device="cpu", BLOCK_SIZE=16)
    blocks = mask.kv_num_blocks, mask.kv_indices, mask.full_kv_num_blocks, mask.full_kv_indices
    return q, k, torch.randn(batch, 2, keys, 5), blocks, offset


@pytest.fixture(scope="module")
def varying(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> aotpack.Model:
    batch, queries, keys = Dim("batch", min=0, max=4), Dim("queries", min=1, max=600), Dim("keys", min=1, max=600)
    rows, places = Dim("rows", min=1, max=40), Dim("places", min=1, max=40)
    blocks = ({2: rows}, {2: rows, 3: places}) * 2
    dims = [{0: batch, 2: queries}, {0: batch, 2: keys}, {0: batch, 2: keys}, blocks, Dim("offset", min=-700, max=700)]
    program = aot_export(Lengths(), lengths(2, 40, 60, 7), dynamic_shapes=dims)
    path = tmp_path_factory.mktemp("flex") / "lengths.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return aotpack.load(path, num_threads=2)


@pytest.mark.parametrize(
    "sizes",
    [
        (2, 40, 60, 7),
        (1, 1, 1, 0),
        (1, 17, 300, -5),
        (3, 300, 33, -40),
        (4, 5, 600, 500),
        (2, 600, 1, -700),
        (0, 9, 9, 0),
    ],
)
def test_lengths_vary(varying: aotpack.Model, sizes: tuple[int, int, int, int]) -> None:
    arguments = lengths(*sizes)
    single, double, brain, half = varying(*arguments)
    with torch.no_grad():
        expected = Lengths()(*in_double(arguments))
    assert_close(single, expected[1], 1e-5)
    assert_close(double, expected[1], 1e-12)
    assert_close(brain, expected[1], 3e-2)
    assert_close(half, expected[3].double(), 4e-3)


def test_blocks_out_of_range_fail_the_call(varying: aotpack.Model) -> None:
    for place, value in ((0, 5), (0, -1), (1, 4), (1, -1), (2, 5), (3, 100)):
        q, k, v, blocks, offset = lengths(2, 40, 60, 7)
        if place in (1, 3):
            blocks[place - 1].fill_(1)
        blocks[place].fill_(value)
        with pytest.raises(ExecutionError, match=r"flex_attention: an index .* out of range"):
            varying(q, k, v, blocks, offset)
    assert varying(*lengths(2, 40, 60, 7))[3].shape[2] == 40


def test_an_index_out_of_range_fails_the_call(build: Build) -> None:
    def model(q: Tensor, table: Tensor, place: Tensor) -> Tensor:
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s + table[h, place[i] - j])  # type: ignore[no-any-return]

    q, table = torch.randn(1, 2, 9, 4), torch.randn(2, 17)
    with torch.no_grad():
        archive = build(model, (q, table, torch.arange(9)))
        # From the back, as in eager.
        for place in (torch.arange(9), torch.arange(9) + 8, torch.arange(9) - 9):
            assert_close(archive(q, table, place), model(q, table, place))
    for wrong in (18, -10):
        with pytest.raises(ExecutionError, match="out of range"):
            archive(q, table, torch.arange(9).index_fill(0, torch.tensor(3), wrong))


def operators(q: Tensor, table: Tensor, keep: Tensor) -> list[Tensor]:
    """Every operator that functions of scores have inside."""

    def unary(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        a = s.abs() + 0.5
        smooth = s.exp().log1p() + a.log() + a.log2() + s.expm1() + a.sqrt() + a.rsqrt() + a.reciprocal() + s.exp2()
        steps = s.floor() + s.ceil() * 2 + s.round() * 3 + s.trunc() * 5 + s.sign() * 7
        return smooth + steps + s.tanh() + s.sigmoid() + s.sin() + s.cos() + s.erf() + s.relu() - (-s) + s.square()

    def binary(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        t = table[h, (i * 3 + j) % 11]
        two = torch.maximum(s, t) * torch.minimum(s, t) / (t.abs() + 1) + torch.pow(t.abs(), s) + 2**s + s**2
        rest = (
            torch.remainder(s, 0.7) + torch.div(s, t, rounding_mode="floor") + torch.div(s, 0.3, rounding_mode="trunc")
        )
        return two + rest + torch.sub(s, t, alpha=3) + (1 - t) + s.clamp(-0.5, 0.25) + s.masked_fill(t > 0, 2.0)

    def integers(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        d = i - j
        whole = d // 3 + d % 5 + torch.div(d, -2, rounding_mode="trunc") + d.clamp(-3, 3) + (d & 6) + (i | j) + (~i ^ j)
        far = i.to(torch.int32) * 7919 * (j + 1) * 7919 * (i + 1) * 104729
        small = d.to(torch.uint8) + (d * 60).to(torch.int8) + (j + h).abs() + d.sign() + torch.minimum(i, j) * b
        return s + whole * 0.1 + (far % 1000) * 0.001 + small.float() * 0.01 + (far > 2**40) + d.bool() + s.half() * 0.5

    def bools(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        odd = (keep[b, i, j] | (i == j)) & ~(i + 1 == j) ^ (h == 1)
        either = torch.logical_or(odd, s > 0.2) & torch.logical_not(s >= 1.5) & (s != 0) & (i * 0.5 <= j)
        return torch.where(either, s, torch.where(torch.logical_xor(odd, i < j), -1.0, -torch.inf)) + odd

    return [flex_attention(q, q, q, score_mod=score) for score in (unary, binary, integers, bools)]


def test_every_operator(tmp_path: Path, cache_dir: Path) -> None:
    arguments = torch.randn(2, 2, 23, 4), torch.randn(2, 11), torch.rand(2, 23, 23) > 0.5
    path = tmp_path / "operators.aotpack"
    with torch.no_grad():
        report = build_archive(aot_export(operators, arguments), path, options=BuildOptions(cache_dir=cache_dir))
        assert_close(aotpack.load(path)(*arguments), operators(*arguments), 2e-4)
    assert "blocked 4 attentions with functions of scores, 0 are not" in str(report.passes)


def test_torch_has_no_gradients_on_cpus() -> None:
    class Trained(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            q = self.project(x)
            y: Tensor = flex_attention(q, q, q)
            return y.square().sum()

    with pytest.raises(CaptureError, match="does not support backward on CPU"):
        aot_export(Trained(), (torch.randn(2, 2, 9, 4),), mode="joint")
