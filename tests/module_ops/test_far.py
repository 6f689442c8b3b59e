"""Operands whose elements lie more than 2^31 elements apart, in memory that is reserved but for the pages in use."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.module_ops.harness import Driver, MakeDriver
from tests.module_ops.test_linalg import GROUPS as LINALG

pytestmark = pytest.mark.torch

FAR = 2**31 + 64
_NORESERVE = 0x4000

Far = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(scope="module")
def far() -> Far:
    """Copies a tensor of three rows to where its rows are FAR elements apart."""

    def spread(x: torch.Tensor) -> torch.Tensor:
        assert x.shape[0] == 3
        inner = x[0].contiguous()
        size = (2 * FAR + inner.numel()) * x.element_size()
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
        except (OSError, ValueError):
            pytest.skip(f"no address space for {size} bytes")
        result = torch.frombuffer(memory, dtype=x.dtype).as_strided(x.shape, (FAR, *inner.stride()))
        return result.copy_(x)

    return spread


def matrix(dtype: torch.dtype) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(-9, 9, (3, 5)).to(dtype)


DTYPES = [torch.int8, torch.float32]

READS: list[tuple[str, Sequence[int]]] = [
    ("cumsum", [0]),
    ("cumprod", [1]),
    ("cummax", [0]),
    ("cummin", [1]),
    ("sort_stable", [0, 1]),
    ("sort", [1, 0]),
    ("topk", [2, 0, 1, 1]),
    ("kthvalue", [2, 0, 0]),
    ("nonzero", []),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("name", "ints"), READS, ids=[name for name, _ in READS])
def test_what_is_read(driver: Driver, far: Far, name: str, ints: Sequence[int], dtype: torch.dtype) -> None:
    x = matrix(dtype)
    equal(driver(name, [far(x)], ints), driver(name, [x], ints))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_indices_and_masks(driver: Driver, far: Far, dtype: torch.dtype) -> None:
    x = matrix(dtype)
    rows = torch.tensor([2, 0, 2])
    mask = x > 0
    equal(driver("index", [far(x), rows]), [x[rows]])
    equal(driver("index", [far(x), rows, far(torch.tensor([[4], [0], [1]]))[:, 0]]), [x[rows, torch.tensor([4, 0, 1])]])
    equal(driver("masked_select", [far(x), far(mask)]), [x[mask]])
    source = matrix(dtype) * 2
    equal(driver("masked_scatter", [far(x), far(mask), far(source)]), [x.masked_scatter(mask, source)])
    boundaries = x.sort(1).values
    equal(driver("searchsorted", [far(boundaries), far(x), None], [0, 0]), [torch.searchsorted(boundaries, x)])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_written(driver: Driver, far: Far, dtype: torch.dtype) -> None:
    x, source = matrix(dtype), matrix(dtype) + 1
    rows = torch.tensor([2, 0, 2])
    for accumulate in (0, 1):
        out = far(x)
        driver("index_put_out", [out, far(source), rows], [accumulate], copied=False)
        expected = x.clone()
        for row, values in zip(rows.tolist(), source, strict=True):
            expected[row] = expected[row] + values if accumulate else values
        equal([out.contiguous()], [expected])
    index = torch.tensor([[2, 0, 1, 2, 0], [1, 1, 2, 0, 1], [0, 2, 0, 1, 2]])
    out = far(x)
    driver("scatter_src", [out, far(x), far(index), far(source)], [0], copied=False)
    equal([out.contiguous()], [x.scatter(0, index, source)])
    driver("scatter_value", [out, out, far(index[:, :2])], [1], real=1.0, copied=False)
    equal([out.contiguous()], [x.scatter(0, index, source).scatter(1, index[:, :2], 1)])
    out = far(x)
    driver("scatter_reduce", [out, far(x), far(index), far(source)], [0, 1], text="sum", copied=False)
    equal([out.contiguous()], [x.scatter_reduce(0, index, source, "sum")])


def points(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(3, 2, 5, 4, dtype=dtype)


def square() -> torch.Tensor:
    x = torch.randn(3, 4, 4, dtype=torch.float64)
    return x @ x.mT + torch.eye(4, dtype=torch.float64)


RESAMPLE = ("resample_driver", ("resample", "grid_sampler"))
FFT = ("fft_driver", ("fft",))
BAGS = ("embedding_bag_driver", ("embedding_bag_grad",))
DRAWS = ("random_driver", ("random_draws", "bounds"))
LOSSES = ("losses_driver", ("ctc", "segment"))
SELECTION = ("selection_driver", ("mode", "histogram", "lexsort", "integers", "sort"))
COMPLEX = ("complex_driver", ("complex",))
KERNELS = (
    "kernel_driver",
    ("linear", "embedding", "layout", "pack", "conv", "attention", "rnn", "gemm", "embedding_bag"),
)
STATES = [torch.randn(3, 6) for _ in range(2)]
BAG_OF, BAG_SIZES = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([2, 1, 2])
SEED = torch.tensor(7)

# Driver, operator, tensors (those with three rows are spread), and the driver's other arguments.
OTHERS: list[tuple[tuple[str, Sequence[str]], str, Sequence[Any], dict[str, Any]]] = [
    (RESAMPLE, "resample", [points()], {"ints": [7, 6, 2, 0, 0, 0]}),
    (RESAMPLE, "resample_backward", [points()], {"ints": [3, 7, 2, 0, 0, 0]}),
    (RESAMPLE, "grid_sampler_2d_backward", [points(), points(), torch.rand(3, 5, 4, 2)], {"ints": [0, 0, 0]}),
    (RESAMPLE, "grid_sampler_3d", [torch.randn(3, 2, 3, 3, 3), torch.rand(3, 2, 2, 2, 3)], {"ints": [0, 0, 0]}),
    (FFT, "fft_r2c", [points()], {"ints": [2, 0, 2, 0, 1, 0, 1, 2, 3]}),
    (FFT, "fft_c2c", [points(torch.complex64)], {"ints": [2, 0, 2, 0, 1, 0, 1, 2, 3]}),
    (FFT, "fft_c2r", [points(torch.complex64)], {"ints": [2, 0, 3, 0, 7, 0, 1, 2, 3]}),
    (BAGS, "full", [torch.randn(3, 4), torch.tensor([2, 0, 1, 2, 0]), torch.tensor([0, 2, 3])], {"ints": [1, 0, -1]}),
    (
        BAGS,
        "dense_backward",
        [torch.randn(3, 4), torch.tensor([2, 0, 1, 2, 0]), BAG_OF, BAG_SIZES, BAG_SIZES, None],
        {"ints": [5, 0, 1, -1]},
    ),
    (DRAWS, "poisson", [torch.rand(3, 5) * 9, SEED], {}),
    (DRAWS, "binomial", [torch.full((3, 5), 9.0), torch.rand(3, 5), SEED], {}),
    (DRAWS, "gamma", [torch.rand(3, 5) + 0.5, SEED], {}),
    (DRAWS, "dirichlet", [torch.rand(3, 5) + 0.5, SEED], {}),
    (DRAWS, "multinomial", [torch.rand(3, 5), SEED], {"ints": [4, 1]}),
    (
        LOSSES,
        "ctc_loss",
        [
            torch.randn(3, 2, 5).log_softmax(2),
            torch.tensor([[1, 2], [3, 1]]),
            torch.tensor([3, 3]),
            torch.tensor([2, 1]),
        ],
        {"ints": [0]},
    ),
    (LOSSES, "segment_reduce", [torch.randn(3, 4), torch.tensor([1, 2])], {"ints": [0, 0, 0], "text": "sum"}),
    (SELECTION, "mode", [torch.randint(0, 3, (3, 5))], {"ints": [0, 0]}),
    (SELECTION, "histc", [torch.rand(3, 5)], {"ints": [4, 0, 1]}),
    (SELECTION, "sort_rows", [torch.randint(0, 2, (3, 5))], {}),
    (COMPLEX, "cumprod", [torch.randn(3, 4, dtype=torch.complex64)], {"ints": [0]}),
    (KERNELS, "to_layout", [points()], {"ints": [0, 2, 3, 1]}),
    (KERNELS, "pack_linear", [torch.randn(3, 40)], {}),
    (KERNELS, "pack_conv", [torch.randn(3, 4, 3, 3)], {"ints": [1, 0]}),
    (KERNELS, "packed_linear", [torch.randn(3, 8), torch.randn(1, 8, 32), None, torch.randn(3, 20)], {"ints": [20, 0]}),
    (KERNELS, "convolution", [points(), torch.randn(6, 2, 3, 3)], {"ints": [0, 1, 1, 1, 1, 1, 1, 1, 0, 0]}),
    (KERNELS, "convolution", [points(), torch.randn(2, 4, 3, 3)], {"ints": [1, 1, 2, 2, 1, 1, 1, 1, 0, 0]}),
    (KERNELS, "attention", [torch.randn(3, 2, 5, 16) for _ in range(3)], {"ints": [1], "real": 0.25}),
    (
        KERNELS,
        "gru_layer",
        [torch.randn(3, 3, 6), torch.randn(1, 6, 32), torch.randn(1, 6, 32), None, None, STATES[0]],
        {"ints": [6, 0]},
    ),
    (
        KERNELS,
        "embedding_bag",
        [torch.randn(3, 9), torch.tensor([2, 0, 1, 2]), torch.tensor([0, 3])],
        {"ints": [1, 0, -1]},
    ),
    *[
        (("linalg_driver", LINALG), name, [square(), *more], {"ints": ints, "text": text})
        for name, more, ints, text in (
            ("lu_factor", [], [], ""),
            ("slogdet", [], [], ""),
            ("inv", [], [], ""),
            ("solve", [torch.randn(3, 4, 2, dtype=torch.float64)], [1, 0], ""),
            ("cholesky", [], [0], ""),
            ("solve_triangular", [torch.randn(3, 4, 2, dtype=torch.float64)], [0, 1, 0], ""),
            ("geqrf", [], [], ""),
            ("qr", [], [], "reduced"),
            ("ldl_factor", [], [0], ""),
            ("eigh", [], [1], "L"),
            ("svd", [], [0, 1], ""),
            ("matrix_exp", [], [], ""),
        )
    ],
]


@pytest.mark.parametrize(
    ("where", "name", "tensors", "options"), OTHERS, ids=[f"{where[0]}-{name}" for where, name, *_ in OTHERS]
)
def test_other_kernels_read_far_rows(
    make_driver: MakeDriver,
    made: dict[str, Driver],
    far: Far,
    where: tuple[str, Sequence[str]],
    name: str,
    tensors: Sequence[Any],
    options: dict[str, Any],
) -> None:
    if where[0] not in made:
        made[where[0]] = make_driver(*where)
    call = made[where[0]]
    spread = [far(t) if t is not None and t.dim() and t.shape[0] == 3 and t.numel() > 3 else t for t in tensors]
    assert any(t is not None and t.dim() and t.stride(0) == FAR for t in spread)
    # Rows that lie side by side may be read as one, and sums then be made in another order.
    equal(call(name, spread, **options), call(name, tensors, **options), tolerance=1e-5)


@pytest.fixture(scope="module")
def made() -> dict[str, Driver]:
    """The drivers that were compiled so far; keys are their names."""
    return {}


def equal(got: Sequence[Any], wanted: Sequence[Any], tolerance: float = 0) -> None:
    assert len(got) == len(wanted)
    for actual, expected in zip(got, wanted, strict=True):
        torch.testing.assert_close(
            actual.contiguous(), expected.contiguous(), rtol=tolerance, atol=tolerance, equal_nan=True
        )
