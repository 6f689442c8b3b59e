"""Bools whose bytes are neither 0 nor 1, as `np.frombuffer(body, bool)` makes them: all operators that read bools see
what numpy and torch mean by them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive, custom_kernel
from aotpack.export.custom_ops.kernels import custom_kernels_restored
from tests.support.building import Build, Pack

_BYTES = np.arange(256, dtype=np.uint8)
_COUNT = 256


def raw(data: Any) -> np.ndarray[Any, Any]:
    """Bools that have these bytes."""
    return np.ascontiguousarray(data, np.uint8).view(np.bool_)


class Readers(torch.nn.Module):
    """One of every kind of operator that reads bools; indices of tables that have just two rows."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        self.register_buffer("seen", torch.zeros(_COUNT, dtype=torch.bool))

    def forward(self, m: Tensor, x: Tensor) -> dict[str, Tensor]:
        index = m.long()
        table = self.table
        square = m.view(16, 16)
        results = {
            "nonzero": m.nonzero(),
            "square_nonzero": square.nonzero(),
            "masked": x[m],
            "masked_rows": x.view(16, 16)[square.any(1)],
            "masked_select": torch.masked_select(x, m),
            "table": table[index],
            "take": torch.take(table, index),
            "gather": table.gather(0, index.view(-1, 1).expand(-1, 2)),
            "embedding": torch.nn.functional.embedding(index, table),
            "bag": torch.nn.functional.embedding_bag(square.long(), table, mode="sum"),
            "one_hot": torch.nn.functional.one_hot(index, 2),
            "scatter": table.new_zeros(2).scatter_add(0, index, x),
            "index_add": table.new_zeros(2).index_add(0, index, x),
            "bincount": torch.bincount(index, minlength=2),
            "where": torch.where(m, x, -x),
            "fill": x.masked_fill(m, -1.0),
            "masked_scatter": x.masked_scatter(m, x.flip(0)),
            "put": x.clone().index_put_((m,), torch.tensor(7.0)),
            "logic": torch.stack([m & ~m.roll(1), m | m.roll(1), m ^ m.roll(1), torch.logical_not(m)]),
            "equal": torch.stack([m == m.roll(3), m > m.roll(3), m != True]),  # noqa: E712
            "sum": torch.stack([m.sum(), index.sum(), torch.count_nonzero(m)]),
            "any_all": torch.stack([m.any(), m.all(), square.any(0).all(), square.all(1).any()]),
            "mean": torch.stack([m.float().mean(), m.double().sum().float(), (m * x).sum()]),
            "scan": m.cumsum(0),
            "extremes": torch.stack([square.amax(1), square.amin(1)]),
            "sort": torch.sort(m, stable=True).values,
            "argsort": torch.argsort(m, stable=True),
            "unique": torch.unique(m),
            "bytes": m.to(torch.uint8),
            "copy": m.clone(),
            "cat": torch.cat([m, m.flip(0)]),
            "repeat": torch.repeat_interleave(x, index),
            "attention": torch.nn.functional.scaled_dot_product_attention(
                *(x.view(1, 1, 16, 16),) * 3, attn_mask=square | torch.eye(16, dtype=torch.bool)
            ),
        }
        self.seen.logical_xor_(m)
        results["seen"] = self.seen.clone()
        return results


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> aotpack.Model:
    program = aot_export(Readers(), (torch.arange(_COUNT) % 3 == 0, torch.randn(_COUNT)))
    path = tmp_path_factory.mktemp("bools") / "readers.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir))
    return aotpack.load(path)


def same(got: dict[str, Any], wanted: dict[str, Tensor]) -> None:
    assert list(got) == list(wanted)
    for name, value in wanted.items():
        array = np.asarray(got[name])
        if value.dtype == torch.bool:
            assert array.view(np.uint8).max(initial=0) <= 1, name
        np.testing.assert_allclose(array, value.numpy(), rtol=1e-5, atol=1e-5, err_msg=name)


def test_every_operator_sees_true_for_every_byte_but_zero(readers: aotpack.Model) -> None:
    x = torch.randn(_COUNT)
    spread = np.empty((_COUNT, 3), np.uint8)
    spread[:, 1] = _BYTES
    masks = {
        "all 256": raw(_BYTES),
        "backwards": raw(_BYTES)[::-1],
        "a column": raw(spread)[:, 1],
        "one byte everywhere": np.broadcast_to(raw([0xFF]), _COUNT),
        "zero": raw(np.zeros(_COUNT)),
        "mixed": raw(np.tile([0, 1, 2, 255], 64)),
    }
    for mask in masks.values():
        before = mask.view(np.uint8).copy() if mask.flags.c_contiguous else None
        normal = torch.from_numpy(np.ascontiguousarray(mask).view(np.uint8) != 0)
        wanted = Readers()(normal, x)
        same(readers.context()(mask, x.numpy()), wanted)
        if before is not None:
            np.testing.assert_array_equal(mask.view(np.uint8), before)


def test_state_and_buffers_of_all_libraries(readers: aotpack.Model) -> None:
    context = readers.context()
    x = np.zeros(_COUNT, np.float32)
    nothing = np.zeros(_COUNT, np.bool_)
    foreign = raw(_BYTES)
    for given in (foreign, torch.from_numpy(foreign), memoryview(foreign)):
        context.load_state({"seen": given})
        seen = np.asarray(context.state()["seen"]).view(np.uint8)
        np.testing.assert_array_equal(seen, _BYTES != 0)
        np.testing.assert_array_equal(np.asarray(context(nothing, x)["seen"]).view(np.uint8), _BYTES != 0)
        got = readers.context()(given, x)["sum"]
        np.testing.assert_array_equal(np.asarray(got), [255, 255, 255])


class Constant(torch.nn.Module):
    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask)

    def forward(self, x: Tensor) -> Tensor:
        return x[self.mask.long()]


def test_constants_are_stored_as_zeros_and_ones(build: Build) -> None:
    model = build(Constant(torch.from_numpy(raw(_BYTES))), (torch.randn(2),))
    x = np.array([5, 7], np.float32)
    np.testing.assert_array_equal(model(x), np.where(_BYTES != 0, 7, 5))


def test_updates_from_files_and_arrays(pack: Pack, tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    program = aot_export(Constant(torch.arange(_COUNT) % 2 == 0), (torch.randn(2),))
    model = aotpack.load(pack(program, updatable=True))
    x = np.array([5, 7], np.float32)
    save_file({"mask": raw(_BYTES)}, tmp_path / "weights.safetensors")
    for weights in ({"mask": raw(_BYTES)}, tmp_path / "weights.safetensors"):
        model.update_weights(weights)
        np.testing.assert_array_equal(model(x), np.where(_BYTES != 0, 7, 5))
        model.reset_weights()


_NAMESPACE = "aotpack_bools"
_library = torch.library.Library(_NAMESPACE, "DEF")
_library.define("flags(Tensor bytes, Tensor(a!) written, Tensor(b!)? maybe, Tensor(c!)[] more) -> Tensor")


@torch.library.impl(_library, "flags", "CPU")
def _flags(x: Tensor, written: Tensor, maybe: Tensor | None, more: list[Tensor]) -> Tensor:
    for tensor in (written, *([] if maybe is None else [maybe]), *more):
        tensor.copy_(x != 0)
    return x != 0


@torch.library.register_fake(f"{_NAMESPACE}::flags", lib=_library)
def _flags_fake(x: Tensor, written: Tensor, maybe: Tensor | None, more: list[Tensor]) -> Tensor:
    return torch.empty_like(x, dtype=torch.bool)


_SOURCE = """
#include "aotpack/operator.h"

#include <cstring>

using namespace aotpack::op;

Tensor flags(Call& call, const Tensor& bytes, const Tensor& written, const std::optional<Tensor>& maybe,
             std::span<const Tensor> more) {
  const Tensor result = call.empty(bytes.sizes(), DType::boolean);
  const auto put = [&](const Tensor& tensor) {
    std::memcpy(tensor.mutable_data<bool>(), bytes.data<uint8_t>(), static_cast<size_t>(bytes.numel()));
  };
  put(result);
  put(written);
  if (maybe) put(*maybe);
  for (const Tensor& tensor : more) put(tensor);
  return result;
}
"""


def test_what_kernels_of_custom_operators_write(build: Build, tmp_path: Path) -> None:
    (tmp_path / "flags.cpp").write_text(_SOURCE)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("state", torch.zeros(_COUNT, dtype=torch.bool))

        def forward(self, x: Tensor, mine: Tensor) -> list[Tensor]:
            maybe, more = torch.zeros_like(mine), torch.zeros_like(mine)
            result = torch.ops.aotpack_bools.flags(x, mine, maybe, [more, self.state])
            flags = [result, mine, maybe, more, self.state]
            return [f.nonzero() for f in flags] + [f.sum() for f in flags] + [f.clone() for f in flags]

    with custom_kernels_restored():
        custom_kernel(f"{_NAMESPACE}::flags", sources=tmp_path / "flags.cpp", function="flags")
        archive = build(Model(), (torch.zeros(_COUNT, dtype=torch.uint8), torch.zeros(_COUNT, dtype=torch.bool)))
    mine = torch.zeros(_COUNT, dtype=torch.bool)
    given = torch.from_numpy(_BYTES)
    wanted = Model()(given, mine.clone())
    for got, value in zip(archive(given, mine), wanted, strict=True):
        assert torch.equal(got, value)
        assert got.dtype != torch.bool or got.view(torch.uint8).max() == 1
    assert torch.equal(mine.view(torch.uint8), (given != 0).view(torch.uint8))
