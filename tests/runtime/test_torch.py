"""torch tensors in, torch tensors out, beside libtorch in one process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import aotpack
from aotpack.errors import InputError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Archive = Callable[[str], Path]


def test_torch_in_torch_out(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    x = torch.arange(8.0).reshape(2, 4)
    for value in (x, x.t().contiguous().t(), torch.nn.Buffer(x)):
        result = model(value)
        assert type(result) is torch.Tensor
        torch.testing.assert_close(result, x * torch.tensor([1.0, 2.0, 3.0, 4.0]) + 1, rtol=0, atol=0)
    result.add_(1)
    out = torch.empty(2, 4)
    assert model.run([x], out=[out])[0] is out
    torch.testing.assert_close(out, model(x))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64", "int64", "bool", "complex64"])
def test_dtypes(archive: Archive, dtype: str) -> None:
    x = (torch.arange(6).reshape(2, 3) % 3).to(getattr(torch, dtype)).t()
    result = aotpack.load(archive(dtype))(x)
    assert result.dtype == x.dtype
    assert torch.equal(result, x)


def test_tensor_goes_to_torch(archive: Archive) -> None:
    tensor = aotpack.load(archive("affine"))(memoryview(torch.ones(1, 4).numpy()))
    assert torch.equal(torch.from_dlpack(tensor), torch.tensor([[2.0, 3.0, 4.0, 5.0]]))


def test_what_memory_alone_does_not_say(archive: Archive) -> None:
    model = aotpack.load(archive("affine"))
    with pytest.raises(InputError, match="requires grad") as info:
        model(torch.ones(2, 4, requires_grad=True))
    assert info.value.hint == "pass tensor.detach()"
    x = torch.ones(2, 2, dtype=torch.complex64).conj()
    with pytest.raises(InputError, match="conjugated"):
        aotpack.load(archive("complex64"))(x)
    with pytest.raises(InputError, match="negated"):
        aotpack.load(archive("float32"))(x.imag)
    with pytest.raises(InputError, match="cannot be read"):
        model(torch.ones(2, 4, device="meta"))
    with pytest.raises(InputError, match="cannot be read"):
        model(torch.ones(2, 4).to_sparse())


def test_in_place(archive: Archive) -> None:
    x = torch.ones(2, 3)
    aotpack.load(archive("in_place"))(x)
    assert torch.equal(x, torch.full((2, 3), 2.0))


def test_numbers(archive: Archive) -> None:
    model = aotpack.load(archive("numbers"))
    x = torch.tensor([1.0, 2.0])
    for n, scale, flag in (
        (3, 0.5, False),
        (torch.tensor(3), torch.tensor(0.5, dtype=torch.float64), torch.tensor(False)),
    ):
        result = model(x, n, scale=scale, flag=flag)
        assert torch.equal(result["y"], torch.tensor([0, 0.5, 1.0], dtype=torch.float64))
        assert [result[key] for key in ("total", "product", "other")] == [5, 1.5, True]
        assert [type(result[key]) for key in ("total", "product", "other")] == [int, float, bool]
    with pytest.raises(InputError, match="'scale': expected float64, got float32"):
        model(x, 3, scale=torch.tensor(0.5), flag=False)
    with pytest.raises(InputError, match="'n' must be an int, got an array of rank 1"):
        model(x, torch.tensor([3]), scale=0.5, flag=False)
    with pytest.raises(InputError, match="requires grad"):
        model(x, 3, scale=torch.tensor(0.5, dtype=torch.float64, requires_grad=True), flag=False)
