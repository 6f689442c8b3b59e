"""The tool itself: it must notice what it is there to notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conformance import report
from tests.conformance.compare import Tolerance, Wrong, compare, own_tolerance
from tests.conformance.opinfo import Results, sliced
from tests.conformance.samples import cases_of, chosen, operators
from tests.conformance.schedule import Entry, Schedule
from tests.conformance.task import (
    CALL_ERROR,
    CRASH,
    FORWARD,
    OK,
    REFUSED,
    SKIPPED,
    TIMEOUT,
    TORCH_CANNOT,
    WRONG,
    Ending,
    Outcome,
    Part,
    Record,
    Task,
)
from tests.conformance.worker import Worker
from tests.support.torchless import Torchless

pytestmark = pytest.mark.torch


@dataclass
class Sample:
    input: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass
class Operator:
    """Like an entry of the database."""

    op: Callable[..., Any]
    samples: Callable[[], list[Sample]]
    name: str = "fake"
    variant_test_name: str = ""
    decorators: tuple[Any, ...] = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool = False) -> Iterator[Sample]:
        yield from self.samples()


def drawn(*shapes: tuple[int, ...]) -> Callable[[], list[Sample]]:
    return lambda: [Sample(torch.randn(shape)) for shape in shapes]


def wrong_when_captured(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if torch.compiler.is_exporting() and x.shape[0] == 3 else x + 2


def baked(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, 6.0) if torch.compiler.is_exporting() else x * 2


def out_of_range(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    index = index + 5 if torch.compiler.is_exporting() else index
    return x[index]


LIBRARY = torch.library.Library("aotpack_conformance", "FRAGMENT")
LIBRARY.define("without_kernel(Tensor x) -> Tensor")
LIBRARY.impl("without_kernel", lambda x: x.clone(), "CPU")
LIBRARY.impl("without_kernel", torch.empty_like, "Meta")
# As if C++ had registered it: operators whose kernel is Python are traced through.
torch.library._impls.discard("aotpack_conformance/without_kernel/CPU")


def without_kernel(x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aotpack_conformance.without_kernel(x)


def fails_in_eager(x: torch.Tensor) -> torch.Tensor:
    if x.dim() == 2:
        raise ValueError("not of rank 2")
    return x.sin()


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if bool(x.sum() > 0) else x - 1


OPERATORS = {
    "right": Operator(torch.sin, drawn((3,), (2, 0), ())),
    "wrong": Operator(wrong_when_captured, drawn((2,), (3,), (4,))),
    "baked": Operator(baked, lambda: [Sample(torch.full((4,), 3.0))]),
    "call": Operator(out_of_range, lambda: [Sample(torch.randn(4), (torch.tensor([1, 2]),))]),
    "refused": Operator(without_kernel, drawn((3,))),
    "eager": Operator(fails_in_eager, drawn((3,), (3, 3))),
    "branches": Operator(branches, drawn((3,))),
}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Worker:
    return Worker(tmp_path_factory.mktemp("archives"), OPERATORS.__getitem__, cache_dir)


def whole(*names: str) -> Task:
    counts = {name: len(cases_of(OPERATORS[name], "float32")) for name in names}
    return Task(tuple(Part(name, "float32", tuple(range(counts[name]))) for name in names))


def test_wrong_results_are_found(worker: Worker) -> None:
    outcome = worker.run(whole("right", "wrong", "baked", "eager"))
    assert outcome.failure is None
    kinds = {(op, case): ending.kind for (op, _, case), ending in outcome.endings.items()}
    assert kinds == {
        ("right", 0): OK,
        ("right", 1): OK,
        ("right", 2): OK,
        ("wrong", 0): OK,
        ("wrong", 1): WRONG,
        ("wrong", 2): OK,
        # With the values of the capture the result is right.
        ("baked", 0): WRONG,
        ("eager", 0): OK,
        ("eager", 1): SKIPPED,
    }
    assert "3 of 3 elements differ" in outcome.endings["wrong", "float32", 1].text


def test_an_error_of_the_call_is_found(worker: Worker) -> None:
    failure = worker.run(whole("call")).failure
    assert failure is not None
    assert failure.kind == CALL_ERROR


def test_a_refusal_is_found(worker: Worker) -> None:
    endings = worker.run(whole("right", "refused")).endings
    refused = endings.pop(("refused", "float32", 0))
    assert refused.kind == REFUSED
    assert "without_kernel" in refused.operators[0]
    # The others are built without it.
    assert {ending.kind for ending in endings.values()} == {OK}


def test_what_torch_cannot_compile_is_found(worker: Worker) -> None:
    failure = worker.run(whole("branches")).failure
    assert failure is not None
    assert failure.kind == REFUSED
    assert worker.stock(Part("branches", "float32", (0,)), FORWARD) is not None
    assert worker.stock(Part("right", "float32", (0,)), FORWARD) is None


def test_a_crash_is_found(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    process = Torchless()

    class Dying:
        def context(self, **options: Any) -> Dying:
            return self

        def method(self, name: str) -> None:
            pass

        def __call__(self, *args: Any) -> Any:
            process._process.kill()
            return process.ask("entry", 0, "forward")

    monkeypatch.setattr(process, "load", lambda path, **options: Dying())
    monkeypatch.setattr(worker, "_runner", process)
    failure = worker.run(whole("right")).failure
    assert failure is not None
    assert failure.kind == CRASH
    # The next task has another process.
    assert worker.run(whole("right")).failure is None


def test_stock_takes_what_ours_lacks(worker: Worker) -> None:
    assert worker.stock(Part("refused", "float32", (0,)), FORWARD) is None


# ---- groups ---------------------------------------------------------------------------------------------------------


class Pretended:
    """A worker for which cases end as they are told; a task with one that fails, fails."""

    tasks: int = 0

    def __init__(self, bad: dict[tuple[str, int], Any], unknown_to_torch: frozenset[str] = frozenset()) -> None:
        self.bad, self.unknown = bad, unknown_to_torch

    def ask(self, command: str, *arguments: Any, seconds: float) -> Any:
        if command == "stock":
            return "data-dependent" if arguments[0].op in self.unknown else None
        Pretended.tasks += 1
        endings = {}
        for part in arguments[0].parts:
            for case in part.cases:
                bad = self.bad.get((part.op, case), OK)
                if isinstance(bad, type):
                    raise bad
                if bad == REFUSED or (bad == CALL_ERROR and not arguments[0].probe):
                    return Outcome({}, Ending(bad, f"{part.op} {case}"), {"run": 1.0})
                endings[part.op, part.dtype, case] = Ending(bad, "tolerance" if bad == OK else "differs")
        return Outcome({} if arguments[0].probe else endings, None, {"run": 1.0})

    def full(self) -> bool:
        return False

    def close(self) -> None:
        pass


def scheduled(bad: dict[tuple[str, int], Any], counts: dict[str, int], **options: Any) -> dict[str, Record]:
    entries = [Entry(op, "float32", count, count, tuple(range(count))) for op, count in counts.items()]
    schedule = Schedule(entries, FORWARD, jobs=2, worker=lambda: Pretended(bad, **options))
    return {record.op: record for record in schedule.records()}


def test_groups_are_divided_down_to_the_cases_at_fault() -> None:
    bad = {
        ("b", 3): CALL_ERROR,
        ("c", 1): EOFError,
        ("d", 0): TimeoutError,
        ("e", 2): REFUSED,
        ("f", 0): WRONG,
        ("g", 0): REFUSED,
        ("h", 5): REFUSED,
    }
    counts = {"a": 200, "b": 9, "c": 3, "d": 1, "e": 4, "f": 2, "g": 1, "h": 7, "none": 0}
    records = scheduled(bad, counts, unknown_to_torch=frozenset("gh"))
    assert {op: record.verdict for op, record in records.items()} == {
        "a": "passes",
        "b": "fails",
        "c": "fails",
        "d": "fails",
        "e": "passes 3 of 4",
        "f": "fails",
        "g": "torch cannot",
        "h": "passes",
        "none": "nothing to run",
    }
    assert records["b"].endings == {CALL_ERROR: 1, OK: 8}
    assert records["b"].reasons == [(CALL_ERROR, "b 3", 1, 3)]
    assert records["c"].endings == {CRASH: 1, OK: 2}
    assert records["d"].endings == {TIMEOUT: 1}
    assert records["h"].endings == {OK: 6, TORCH_CANNOT: 1}
    assert records["a"].endings == {OK: 200}


def test_a_hopeless_operator_does_not_take_for_ever() -> None:
    Pretended.tasks = 0
    records = scheduled({("a", case): CALL_ERROR for case in range(200)}, {"a": 200})
    assert records["a"].endings == {CALL_ERROR: 200}
    assert Pretended.tasks < 100


def test_slices_are_parts_of_every_dtype() -> None:
    pairs = [(f"op{i}", dtype) for dtype in ("float32", "bool") for i in range(10)]
    parts = [sliced(pairs, number, 4) for number in range(4)]
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    assert all({dtype for _, dtype in part} == {"float32", "bool"} for part in parts)


def test_results_of_a_killed_run_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    record = scheduled({}, {"a": 3})["a"]
    Results(path).add(record)
    with path.open("a") as file:
        file.write('{"op": "b", "dty')
    assert list(Results(path).known.values()) == [record]


# ---- samples --------------------------------------------------------------------------------------------------------


def test_samples_that_differ_in_values_are_one_case() -> None:
    def samples() -> list[Sample]:
        return [
            Sample(torch.randn(3)),
            Sample(torch.randn(3)),
            Sample(torch.randn(6)[::2]),
            Sample(torch.randn(3), (1,)),
        ]

    cases = cases_of(Operator(torch.add, samples), "float32")
    assert [case.samples for case in cases] == [2, 1, 1]
    assert [len(case.values) for case in cases] == [3, 2, 2]
    assert cases[1].values[1][0].stride() == (2,)
    values = [values[0] for values in cases[0].values]
    assert not torch.equal(values[0], values[1])
    assert not torch.equal(values[0], values[2])


def test_values_that_the_generator_repeats_are_made_others() -> None:
    cases = cases_of(Operator(torch.sin, lambda: [Sample(torch.arange(6.0).reshape(2, 3).t())]), "float32")
    first, second = (values[0] for values in cases[0].values)
    assert second.stride() == first.stride()
    assert not torch.equal(first, second)


def test_cases_are_the_same_in_every_process() -> None:
    op = operators()["masked.sum"]
    one, other = cases_of(op, "float32"), cases_of(op, "float32")
    assert len(one) == len(other)
    pairs = [pair for a, b in zip(one, other, strict=True) for pair in zip(a.values, b.values, strict=True)]
    assert all(torch.equal(x.nan_to_num(), y.nan_to_num()) for v, w in pairs for x, y in zip(v, w, strict=True))


def test_choosing_is_even() -> None:
    assert chosen(5, None) == (0, 1, 2, 3, 4)
    assert chosen(5, 9) == (0, 1, 2, 3, 4)
    assert chosen(100, 4) == (0, 25, 50, 75)


# ---- comparison -----------------------------------------------------------------------------------------------------

SIN = Operator(torch.sin, list)


def judged(actual: Any, expected: Any, precise: Any = None) -> str:
    return compare(SIN, [actual], [expected], lambda: None if precise is None else [precise])


def test_rules_of_comparison() -> None:
    one = torch.ones(3)
    assert judged(one, one + 1e-7) == "tolerance"
    assert judged(torch.tensor([torch.nan, torch.inf]), torch.tensor([torch.nan, torch.inf])) == "tolerance"
    # Eager is off at one element, where ours is right.
    assert judged(one, torch.tensor([1.0, 1.0, 1.1]), one.double()) == "float64"
    # Both are off, eager more so.
    assert judged(one + 0.01, one + 0.02, one.double()) == "nearer"


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.ones(3), torch.ones(3) + 1e-3),
        (torch.ones(3), torch.ones(3).double()),
        (torch.ones(3), torch.ones(1, 3)),
        (torch.tensor([1.0, torch.nan]), torch.ones(2)),
        (torch.ones(2), torch.tensor([1.0, torch.nan])),
        (torch.tensor([torch.inf]), torch.tensor([-torch.inf])),
        (torch.tensor([3]), torch.tensor([4])),
        (torch.tensor([True]), torch.tensor([False])),
        (3, 4),
        (1.5, 1),
    ],
)
def test_differences_are_wrong(actual: Any, expected: Any) -> None:
    with pytest.raises(Wrong):
        judged(actual, expected, expected.double() if isinstance(expected, torch.Tensor) else None)


def test_sums_of_products_may_round_otherwise() -> None:
    ours, eager, precise = torch.tensor([1.00003, 300.0]), torch.tensor([1.00001, 300.0]), torch.ones(2).double()
    precise[1] = 300
    assert compare(operators()["matmul"], [ours], [eager], lambda: [precise]) == "rounding"
    with pytest.raises(Wrong):
        compare(operators()["mul"], [ours], [eager], lambda: [precise])
    with pytest.raises(Wrong):
        compare(operators()["matmul"], [ours + 0.001], [eager], lambda: [precise])


def test_farther_than_eager_is_wrong() -> None:
    with pytest.raises(Wrong):
        judged(torch.ones(3) + 0.03, torch.ones(3) + 0.02, torch.ones(3).double())


def test_tolerances_of_the_database() -> None:
    found = own_tolerance(operators()["addmv"], torch.float16)
    assert found == Tolerance(rtol=0.003, atol=1e-05)
    assert own_tolerance(SIN, torch.float32) == Tolerance(rtol=1.3e-6, atol=1e-5)


# ---- the page -------------------------------------------------------------------------------------------------------


def test_the_page_counts() -> None:
    records = list(
        scheduled(
            {("b", 0): REFUSED, ("c", 0): WRONG, ("d", 0): REFUSED, ("e", 1): REFUSED},
            {"a": 2, "b": 1, "c": 1, "d": 1, "e": 2},
            unknown_to_torch=frozenset("d"),
        ).values()
    )
    text = report.document(records, {"torch": "2.13.0"}, {"float32": 200, "int64": 7})
    assert text == report.document(list(reversed(records)), {"torch": "2.13.0"}, {"float32": 200, "int64": 7})
    assert "| float32 | 5 | 4 | 1 | 25.0% | 95% | 1 | 1 | 1 | 0 | 0 |" in text
    assert "| `a` | passes |" in text
    assert "| `c` | **fails** (wrong) |" in text
    assert "- `e` float32 (1 of 2): e 1" in text
    assert report.names_of(records, FORWARD)["float32"]["e"] == "passes 1 of 2"
