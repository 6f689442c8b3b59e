"""uint16, uint32, uint64 and the dtypes of float8 as inputs, results, state, constants and weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import aotpack
from aotpack.cli.arrays import as_numbers
from aotpack.errors import InputError, WeightsError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.spec import DType
from tests.support.torch_version import VERSION

pytestmark = pytest.mark.torch

FLOATS = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
INTS = (torch.uint16, torch.uint32, torch.uint64)
DTYPES = (*INTS, *FLOATS)
NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]
COLUMNS = 16


def every_value(dtype: torch.dtype) -> Tensor:
    """All 256 elements of a dtype of float8: zeros, subnormals, the greatest, infinities, NaNs. Of others the bounds,
    what is beside them and beside those of signed types, and random ones.
    """
    if dtype in FLOATS:
        return torch.arange(256, dtype=torch.uint8).view(dtype).reshape(COLUMNS, COLUMNS)
    top = 1 << (8 * dtype.itemsize)
    bounds = [0, 1, 2, 255, 256, top // 2 - 1, top // 2, top // 2 + 1, top - 2, top - 1]
    others = torch.randint(0, 1 << 62, (256 - len(bounds),), generator=torch.Generator().manual_seed(0)).tolist()
    return torch.tensor([*bounds, *(value % top for value in others)], dtype=dtype).reshape(COLUMNS, COLUMNS)


def to_round(dtype: torch.dtype) -> Tensor:
    """float32 values at and beside all that a dtype of float8 has, in the middle of two, beyond its range."""
    values = every_value(dtype).float().flatten()
    finite = values[values.isfinite()].unique()
    middle = (finite[1:] + finite[:-1]) / 2
    beyond = finite.max() * torch.tensor([1.01, 1.04, 1.08, 1.15, 2.0, 1e30])
    some = torch.cat([finite, middle, middle.nextafter(finite[1:]), middle.nextafter(finite[:-1]), beyond, -beyond])
    return torch.cat([some, torch.tensor([0.0, -0.0, torch.nan, torch.inf, -torch.inf, 1e-30, -1e-30])])


class Stored(nn.Module):
    """Everything that moves elements without computing with them, and what converts them."""

    def __init__(self) -> None:
        super().__init__()
        self.constants = {
            name: every_value(dtype).flip(0)[:2].clone() for name, dtype in zip(NAMES, DTYPES, strict=True)
        }
        for name, dtype in zip(NAMES, DTYPES, strict=True):
            self.register_buffer(f"{name}_weight", every_value(dtype))
            self.register_buffer(f"{name}_last", torch.ones(COLUMNS).to(dtype))

    def forward(self, rows: dict[str, Tensor], floats: Tensor, index: Tensor) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, dtype in zip(NAMES, DTYPES, strict=True):
            x, weight, last = rows[name], getattr(self, f"{name}_weight"), getattr(self, f"{name}_last")
            result[name] = {
                "same": x,
                "weight": weight,
                "last": last.clone(),
                "wide": x.to(torch.float64),
                "narrow": x.to(torch.float32),
                "turned": x.t(),
                "joined": torch.cat([x, weight[:1], self.constants[name]]),
                "taken": weight[index],
                "stepped": x.flip(0)[:, ::3].clone(),
                "bits": x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]),
                "used": (weight.to(torch.float32).nan_to_num(1, 2, 3) + 1).amax(1),
            }
            # Eager does not choose between unsigned integers before 2.13.
            if dtype in FLOATS or VERSION >= (2, 13):
                result[name]["chosen"] = torch.where(index > 3, x[0], weight[1])
            if dtype in FLOATS:
                result[name]["rounded"] = floats.to(dtype)
                result[name]["half"] = x.to(torch.bfloat16)
            else:
                result[name]["rounded"] = floats.nan_to_num(7, 8, 9).abs().clamp(0, 60000).to(dtype)
                result[name]["signed"] = x.to(torch.int64)
            last.copy_(x[-1])
        return result


def example(rows: int) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    chosen = torch.randint(0, COLUMNS, (rows,))
    floats = torch.cat([to_round(dtype) for dtype in FLOATS])
    given = {name: every_value(dtype)[chosen] for name, dtype in zip(NAMES, DTYPES, strict=True)}
    return given, floats, torch.randint(0, COLUMNS, (COLUMNS,))


def assert_same(actual: Any, expected: Any) -> None:
    """Bits are equal, those of NaNs of float aside."""
    for name, values in expected.items():
        for key, wanted in values.items():
            got = actual[name][key]
            assert got.dtype == wanted.dtype, f"{name} {key}"
            assert got.shape == wanted.shape, f"{name} {key}"
            if wanted.dtype.is_floating_point:
                got, wanted = (t.to(torch.float64).nan_to_num(nan=1e300) for t in (got, wanted))
                assert torch.equal(got.signbit(), wanted.signbit()), f"{name} {key}"
                assert torch.equal(got, wanted), f"{name} {key}"
            else:
                got, wanted = (t.reshape(-1).view(torch.uint8) for t in (got, wanted))
                assert torch.equal(got, wanted), f"{name} {key}"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Path:
    path = tmp_path_factory.mktemp("storage") / "model.aotpack"
    rows = {name: {0: aotpack.Dim("n", 1, 40)} for name in NAMES}
    program = aot_export(Stored(), example(5), dynamic_shapes={"rows": rows, "floats": None, "index": None})
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, updatable=True))
    return path


@pytest.fixture(scope="module")
def archive(path: Path) -> aotpack.Model:
    return aotpack.load(path, verify="full")


def test_calls_return_what_eager_returns(archive: aotpack.Model) -> None:
    context, model = archive.context(), Stored()
    for rows in (5, 1, 40, 2):
        call = example(rows)
        expected = model(*call)
        assert_same(context(*call), expected)
    state = context.state()
    for name, dtype in zip(NAMES, DTYPES, strict=True):
        assert_same_bits(torch.from_dlpack(state[f"{name}_last"]), getattr(model, f"{name}_last"))
        assert str(torch.from_dlpack(state[f"{name}_last"]).dtype) == str(dtype)
    other = archive.context()
    other.load_state(state)
    call = example(3)
    assert_same(other(*call), model(*call))


def assert_same_bits(actual: Tensor, expected: Tensor) -> None:
    assert torch.equal(actual.reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))


def to_numpy(tensor: Tensor, *, raw: bool = False) -> np.ndarray[Any, Any]:
    if tensor.dtype not in FLOATS:
        return tensor.numpy()
    bits = tensor.contiguous().view(torch.uint8).numpy()
    return bits if raw else bits.view(getattr(ml_dtypes, str(tensor.dtype).removeprefix("torch.")))


def test_numpy_and_plain_buffers(archive: aotpack.Model) -> None:
    rows, floats, index = example(4)
    expected = Stored()(rows, floats, index)
    for raw in (False, True):
        given = {name: to_numpy(tensor, raw=raw) for name, tensor in rows.items()}
        actual = archive(given, floats.numpy(), index.numpy())
        for name, tensor in rows.items():
            same = actual[name]["same"]
            assert same.dtype == to_numpy(tensor).dtype
            assert same.tobytes() == to_numpy(tensor).tobytes()
            np.testing.assert_array_equal(actual[name]["wide"], expected[name]["wide"].numpy())
    plain = {name: memoryview(to_numpy(tensor, raw=True)) for name, tensor in rows.items()}
    actual = archive(plain, memoryview(floats.numpy()), memoryview(index.numpy()))
    for name, tensor in rows.items():
        assert isinstance(actual[name]["weight"], aotpack.Tensor)
        assert actual[name]["weight"].dtype == name
        np.testing.assert_array_equal(actual[name]["same"].tolist(), tensor.tolist())
        wanted = every_value(getattr(torch, name)).tolist()
        np.testing.assert_array_equal(actual[name]["weight"].tolist(), wanted)


def test_other_dtypes_are_refused(archive: aotpack.Model) -> None:
    rows, floats, index = example(4)
    for name in NAMES:
        wrong = np.zeros((4, COLUMNS), np.int8 if "float8" in name else name.removeprefix("u"))
        with pytest.raises(InputError, match=f"expected {name}, got {wrong.dtype}"):
            archive({**rows, name: wrong}, floats, index)
    with pytest.raises(InputError, match="expected float8_e5m2, got float8_e4m3fn"):
        archive({**rows, "float8_e5m2": rows["float8_e4m3fn"]}, floats, index)
    with pytest.raises(InputError, match="expected uint16, got bfloat16"):
        archive({**rows, "uint16": torch.zeros(4, COLUMNS, dtype=torch.bfloat16)}, floats, index)


def test_weights_are_replaced(path: Path, tmp_path: Path) -> None:
    archive, model = aotpack.load(path), Stored()
    old = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    new = {name: tensor.flatten().roll(37).view_as(tensor) for name, tensor in old.items()}
    save_file(new, tmp_path / "new.safetensors")
    call = example(2)
    model.load_state_dict(new)
    expected = model(*call)
    arrays = {name: to_numpy(tensor) for name, tensor in new.items()}
    for source in (new, tmp_path / "new.safetensors", arrays):
        archive.reset_weights()
        archive.update_weights(source)
        assert_same(archive.context()(*call), expected)
    wrong = {**new, "float8_e5m2_weight": new["float8_e5m2fnuz_weight"]}
    with pytest.raises(WeightsError, match="expected float8_e5m2 "):
        archive.update_weights(wrong)


@pytest.mark.parametrize("dtype", FLOATS)
def test_values_of_float8_for_people(dtype: torch.dtype) -> None:
    known = DType(str(dtype).removeprefix("torch."))
    values = every_value(dtype)
    numbers = as_numbers(to_numpy(values, raw=True), known)
    np.testing.assert_array_equal(numbers, values.double().numpy())
    np.testing.assert_array_equal(np.signbit(numbers[numbers == 0]), np.signbit(values.double().numpy()[numbers == 0]))
    assert (known.itemsize, known.numpy_name, known.is_floating, known.is_float8) == (1, "uint8", True, True)
