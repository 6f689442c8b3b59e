"""The CTC loss, reductions of segments, and their gradients, against torch in double precision."""

from __future__ import annotations

import random

import pytest
import torch

from tests.module_ops.cases import arrange, aten
from tests.module_ops.harness import Driver, MakeDriver, OperatorError

pytestmark = pytest.mark.torch


@pytest.fixture(scope="session")
def losses(make_driver: MakeDriver) -> Driver:
    return make_driver("losses_driver", ("ctc", "segment"))


def problem(generator: random.Random, dtype: torch.dtype) -> tuple[list[torch.Tensor], int]:
    """log_probs, targets, input_lengths, target_lengths; blank. Some have no alignment, or nothing to align."""
    torch.manual_seed(generator.randrange(1 << 30))
    steps, batch, labels = generator.randint(1, 14), generator.randint(1, 5), generator.randint(2, 6)
    blank = generator.randrange(labels)
    lengths = [generator.randint(0, min(steps, 6)) for _ in range(batch)]
    inputs = [generator.randint(0, steps) for _ in range(batch)]
    others = torch.tensor([label for label in range(labels) if label != blank])
    if generator.random() < 0.5:
        targets = others[torch.randint(0, len(others), (batch, max(lengths) + generator.randint(0, 2)))]
        for row, length in enumerate(lengths):
            targets[row, length:] = -100  # padding is never looked at
    else:
        targets = others[torch.randint(0, len(others), (sum(lengths),))]
    log_probs = torch.randn(steps, batch, labels, dtype=torch.float64).log_softmax(-1).to(dtype)
    kind = generator.choice([torch.int64, torch.int32])
    arguments = [log_probs, targets.to(kind), torch.tensor(inputs), torch.tensor(lengths)]
    arguments[0] = arrange(generator, log_probs) if generator.random() < 0.5 else log_probs
    return arguments, blank


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ctc_loss(losses: Driver, dtype: torch.dtype) -> None:
    generator = random.Random(21)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-11}
    infinite = 0
    for _ in range(150):
        arguments, blank = problem(generator, dtype)
        log_probs, targets, *lengths = arguments
        wide = [log_probs.double(), targets.long(), *lengths]
        want, want_alpha = aten._ctc_loss.Tensor(*wide, blank)
        nll, alpha = losses("ctc_loss", arguments, [blank], threads=generator.choice([1, 3]))
        assert nll.dtype == dtype
        torch.testing.assert_close(nll.double(), want, **tolerance)
        steps, batch = log_probs.shape[:2]
        assert alpha.shape == (batch, steps, 2 * targets.shape[-1] + 1)
        infinite += int(want.isinf().sum())
        for zero_infinity in (False, True):
            grad = torch.randn(batch, dtype=dtype)
            want_grad = aten._ctc_loss_backward.Tensor(grad.double(), *wide, want, want_alpha, blank, zero_infinity)
            (got,) = losses("ctc_loss_backward", [grad, *arguments, nll, alpha], [blank, zero_infinity])
            torch.testing.assert_close(got.double(), want_grad, equal_nan=True, **tolerance)
    assert infinite > 20


def test_ctc_loss_of_long_sequences_on_several_threads(losses: Driver) -> None:
    torch.manual_seed(3)
    log_probs = torch.randn(200, 8, 30).log_softmax(-1)
    targets, lengths = torch.randint(1, 30, (8, 60)), torch.randint(1, 61, (8,))
    inputs = torch.randint(150, 201, (8,))
    once = losses("ctc_loss", [log_probs, targets, inputs, lengths], [0], threads=1)
    again = losses("ctc_loss", [log_probs, targets, inputs, lengths], [0], threads=3)
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
    arguments = [torch.ones(8), log_probs, targets, inputs, lengths, *once]
    grads = [losses("ctc_loss_backward", arguments, [0, 0], threads=t)[0] for t in (1, 3)]
    assert torch.equal(*grads)
    want, _ = aten._ctc_loss.Tensor(log_probs.double(), targets, inputs, lengths)
    torch.testing.assert_close(once[0].double(), want, rtol=1e-5, atol=1e-4)


def test_ctc_loss_errors(losses: Driver) -> None:
    log_probs, two = torch.zeros(5, 2, 3), torch.tensor([2, 2])
    targets = torch.ones(2, 3, dtype=torch.int64)
    for arguments, blank, message in (
        ([log_probs, targets, torch.tensor([6, 1]), two], 0, "input_lengths to have value at most 5, but got value 6"),
        (
            [log_probs, targets, torch.tensor([-1, 1]), two],
            0,
            "input_lengths to have value at least 0, but got value -1",
        ),
        ([log_probs, targets, two, torch.tensor([-1, 1])], 0, "target_lengths to have value at least 0"),
        ([log_probs, targets, two, torch.tensor([4, 1])], 0, "size at least 4 at dimension 1, but got size 3"),
        ([log_probs, targets.flatten(), two, two], 0, "to have size 4 at dimension 0, but got size 6"),
        ([log_probs, targets.flatten(), two, torch.tensor([5, 5])], 0, "size at least 10 at dimension 0"),
        ([log_probs, targets, two, torch.tensor([1])], 0, "target_lengths must be of size batch_size"),
        ([log_probs, targets, torch.tensor([1]), two], 0, "input_lengths must be of size batch_size"),
        ([log_probs, targets, two, two], 3, "blank must be in label range"),
        ([log_probs, targets * 3, two, two], 0, r"target 3 is not in \[0, 3\)"),
        ([log_probs, -targets, two, two], 0, r"target -1 is not in \[0, 3\)"),
        ([log_probs[:0], targets, two * 0, two], 0, "log_probs tensor must not be empty"),
        ([log_probs, targets[:1], two, two], 0, "to have size 2 at dimension 0, but got size 1"),
    ):
        with pytest.raises(OperatorError, match=message):
            losses("ctc_loss", arguments, [blank])


# ---- reductions of segments -----------------------------------------------------------------------------------------


def segments(generator: random.Random, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Data, lengths, axis; some lengths are 0."""
    torch.manual_seed(generator.randrange(1 << 30))
    sizes = [generator.randint(1, 3) for _ in range(generator.randint(1, 4))]
    axis = generator.randrange(len(sizes))
    sizes[axis] = generator.randint(1, 9)
    cuts = torch.randint(0, sizes[axis] + 1, (*sizes[:axis], generator.randint(0, 4))).sort(-1).values
    ends = torch.cat([torch.zeros(*sizes[:axis], 1), cuts, torch.full((*sizes[:axis], 1), sizes[axis])], -1).long()
    data = torch.randint(-3, 4, sizes).to(dtype)
    return data, ends.diff(dim=-1), axis


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_segment_reduce(losses: Driver, dtype: torch.dtype, reduce: str) -> None:
    generator = random.Random(22)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}[dtype]
    close = {"rtol": tolerance, "atol": tolerance, "equal_nan": True}
    for _ in range(80):
        data, lengths, axis = segments(generator, dtype)
        if generator.random() < 0.2:
            data.view(-1)[generator.randrange(data.numel())] = float("nan")
        given = arrange(generator, data)
        wide, by = given.double(), {"lengths": lengths}
        tensors: list[torch.Tensor | None] = [given, lengths.to(generator.choice([torch.int32, torch.int64])), None]
        if generator.random() < 0.5:
            first = torch.zeros(*lengths.shape[:-1], 1, dtype=torch.int64)
            by = {"offsets": torch.cat([first, lengths.cumsum(-1)], -1)}
            tensors = [given, None, by["offsets"]]
        initial = generator.choice([None, 2.0])
        ints = [axis, 0, initial is not None]
        options = {"axis": axis, "initial": initial, **by}
        want = torch.segment_reduce(wide, reduce, **options)
        (got,) = losses("segment_reduce", tensors, ints, real=initial or 0.0, text=reduce, threads=2)
        assert got.dtype == dtype
        torch.testing.assert_close(got.double(), want, **close)
        grad = torch.randn(want.shape).to(dtype)
        want_grad = aten._segment_reduce_backward(grad.double(), want, wide.contiguous(), reduce, **options)
        arguments = [grad, want.to(dtype), *tensors]
        (got,) = losses("segment_reduce_backward", arguments, ints, real=initial or 0.0, text=reduce)
        torch.testing.assert_close(got.double(), want_grad, **(close | {"rtol": 4 * tolerance, "atol": 4 * tolerance}))


def test_segment_reduce_errors(losses: Driver) -> None:
    data = torch.ones(4, 2)
    lengths = lambda *values: torch.tensor(values)  # noqa: E731
    for given, message in (
        ([data, lengths(2, 3), None], "to sum to data.size"),
        ([data, lengths(2, 1), None], "to sum to data.size"),
        ([data, lengths(5, -1), None], "lengths contains negative value!|to sum to data.size"),
        ([data, lengths(-1, 5), None], "lengths contains negative value!"),
        ([data, None, lengths(0, 3, 2)], "must not fall"),
        ([data, None, lengths(-1, 3)], "must not be negative"),
        ([data, None, lengths(0, 5)], "to sum to data.size"),
        ([data, None, None], "Either lengths or offsets must be defined"),
    ):
        with pytest.raises(OperatorError, match=message):
            losses("segment_reduce", given, [0, 0, 0], text="sum")
    # As in torch, data beyond the segments is left out where that is said to be intended.
    (got,) = losses("segment_reduce", [data, lengths(2, 1), None], [0, 1, 0], text="sum")
    assert torch.equal(got, torch.tensor([[2.0, 2.0], [1.0, 1.0]]))
