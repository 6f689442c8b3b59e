"""Random programs over the operators of tests/fuzz/zoo.py, and what their results may be.

An archive and eager round differently, and a program may make that difference any size. How much it makes of it is
measured: eager runs the program again and again with every result, and every argument of what rounds, moved by some
units in the last place at random. Where results differ by that, so may the archive's, by a multiple of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree

from tests.fuzz.draws import Fresh, Known, Pool, Ref, Unfit, shape
from tests.fuzz.zoo import DECIDES, MOVES, OPERATORS, ROUNDS, Operator

_DTYPES = (torch.float32,) * 5 + (torch.float64, torch.bfloat16, torch.int64, torch.bool)
_MOST_ELEMENTS = 3000
_RUNS = 6
# Units in the last place that arguments and results are moved by, and how many times the difference is allowed.
_UNITS = 2.0
_FACTOR = 8.0


@dataclass
class Step:
    """A call: its operator, its arguments with `Ref`s in place of values, and how many values it adds."""

    operator: Operator
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def operands(self, values: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Its positional arguments with these values of the program."""
        return pytree.tree_map_only(Ref, lambda ref: values[ref.index], self.args)

    def run(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Its results with these values of the program."""
        kwargs = pytree.tree_map_only(Ref, lambda ref: values[ref.index], self.kwargs)
        return _tensors(self.operator(*self.operands(values), **kwargs))

    def text(self) -> str:
        args = [_text(value) for value in self.args]
        args += [f"{name}={_text(value)}" for name, value in self.kwargs.items()]
        return f"{self.operator.path}({', '.join(args)})"


@dataclass
class Program(torch.nn.Module):
    """Inputs, and steps over them and over the results of steps before; returns what no step takes, and some more.

    Attributes:
        inputs: the inputs.
        steps: the calls; values are numbered through the inputs and then the steps' results.
        results: which values are returned.
    """

    inputs: list[Fresh] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        super().__init__()

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values = list(inputs)
        for step in self.steps:
            values += step.run(values)
        return tuple(values[i] + 0 if i < len(inputs) else values[i] for i in self.results)

    def perturbed(self, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results with values moved by some units in the last place."""
        values = list(inputs)
        for step in self.steps:
            rounds = step.operator.errors == ROUNDS
            given = [_moved(value) for value in values] if rounds else values
            values += [_moved(value) if rounds else value for value in step.run(given)]
        return tuple(values[i] for i in self.results)

    def text(self) -> str:
        """One line per input and step."""
        lines = [f"v{i} = {tuple(x.shape)} {x.dtype}" for i, x in enumerate(self.inputs)]
        lines += [f"... = {step.text()}" for step in self.steps]
        return "\n".join([*lines, f"return {', '.join(f'v{i}' for i in self.results)}"])


def program(generator: random.Random, steps: int) -> Program:
    """A random program of so many steps, each of which eager runs."""
    made = Program()
    known: list[Known] = []
    used: set[int] = set()
    for _ in range(generator.randint(1, 3)):
        made.inputs.append(Fresh(shape(generator), generator.choice(_DTYPES)))
        known.append(Known(_values(generator, made.inputs[-1], "plain"), exact=True))
    calls: list[tuple[Operator, Any, list[int]]] = []
    while len(calls) < steps:
        operator = generator.choice(OPERATORS)
        # What inputs the call adds come behind those that are there, and in front of all results.
        drawn = _drawn(generator, operator, known)
        if drawn is None:
            continue
        arguments, fresh, results, exact = drawn
        places = {}
        for item, value in fresh:
            places[id(item)] = len(known)
            known.append(Known(value, exact=True))
            made.inputs.append(item)
            calls.append((_INPUT, None, [len(known) - 1]))
        arguments = pytree.tree_map_only(Fresh, lambda item, places=places: Ref(places[id(item)]), arguments)
        pytree.tree_map_only(Ref, lambda ref: used.add(ref.index), arguments)
        calls.append((operator, arguments, list(range(len(known), len(known) + len(results)))))
        known += [Known(result, exact) for result in results]
        steps += len(fresh)
    return _numbered(made, calls, len(known), used, generator)


_INPUT = Operator("", "", lambda *_: ((), {}))


def _drawn(generator: random.Random, operator: Operator, known: Sequence[Known]) -> Any:
    """A call that eager runs: its arguments, its new inputs with values, its results, and whether those are exact."""
    pool = Pool(generator, known, exact=operator.errors == DECIDES)
    try:
        arguments = operator.draw(generator, pool)
        fresh = [(item, _values(generator, item, "plain")) for item in _leaves(arguments, Fresh)]
        values = {id(item): value for item, value in fresh}
        args, kwargs = pytree.tree_map_only(
            (Ref, Fresh), lambda x: pool.of(x) if isinstance(x, Ref) else values[id(x)], arguments
        )
        results = _tensors(operator(*args, **kwargs))
    except (Unfit, RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, ZeroDivisionError):
        return None
    if not results or any(r.numel() > _MOST_ELEMENTS or r.dtype not in _DTYPES for r in results):
        return None
    given = [known[ref.index].exact for ref in _leaves(arguments, Ref)]
    exact = all(given) and (operator.errors != ROUNDS or not any(r.is_floating_point() for r in results))
    return arguments, fresh, results, exact


def _numbered(
    made: Program, calls: list[tuple[Operator, Any, list[int]]], count: int, used: set[int], generator: random.Random
) -> Program:
    """The program with its values in their order: inputs first."""
    first = count - sum(len(values) for operator, _, values in calls if operator is not _INPUT)
    inputs = [i for i in range(count) if not any(i in v for o, _, v in calls if o is not _INPUT)]
    order = {value: place for place, value in enumerate(inputs)}
    assert len(order) == first == len(made.inputs)
    for operator, arguments, values in calls:
        if operator is _INPUT:
            continue
        args, kwargs = pytree.tree_map_only(Ref, lambda ref: Ref(order[ref.index]), arguments)
        made.steps.append(Step(operator, args, kwargs))
        for value in values:
            order[value] = len(order)
    made.results = [order[i] for i in range(count) if i not in inputs and (i not in used or generator.random() < 0.3)]
    return made


def draw_values(generator: random.Random, made: Program, kind: str) -> list[torch.Tensor]:
    """Inputs of a kind: `plain`, of all `sizes` of numbers, or `special`: with infinities, NaN, subnormals."""
    return [_values(generator, item, kind) for item in made.inputs]


def _values(generator: random.Random, item: Fresh, kind: str) -> torch.Tensor:
    seeded = torch.Generator().manual_seed(generator.getrandbits(32))
    if item.dtype == torch.bool:
        return torch.rand(item.shape, generator=seeded) < generator.choice((0.5, 0.5, 0.0, 1.0))
    if item.dtype == torch.int64:
        return torch.randint(item.least, item.below, item.shape, generator=seeded)
    x = torch.randn(item.shape, generator=seeded, dtype=torch.float64)
    if kind == "sizes":
        x = x * 10.0 ** torch.empty(item.shape, dtype=torch.float64).uniform_(-12, 6, generator=seeded)
    x = x.to(item.dtype)
    if kind == "special":
        info = torch.finfo(item.dtype)
        tiny = info.tiny * info.eps
        # Not the greatest: where sums overflow on their way, nothing says what comes of them.
        great = info.max**0.4
        odd = (0.0, -0.0, torch.inf, -torch.inf, torch.nan, tiny, -3 * tiny, info.tiny, great, -great, 1.0, 1e-8)
        chosen = torch.tensor(odd, dtype=torch.float64).to(item.dtype)
        some = torch.rand(item.shape, generator=seeded) < generator.choice((0.05, 0.3))
        x = torch.where(some, chosen[torch.randint(len(odd), item.shape, generator=seeded)], x)
    return x


def check(made: Program, inputs: Sequence[torch.Tensor], actual: Sequence[torch.Tensor]) -> None:
    """Compares an archive's results with eager's and with eager's in float64.

    Raises:
        AssertionError: a result is farther from both than rounding explains.
    """
    expected = made(*inputs)
    alternatives = [_in_precision(made, inputs), _without_masked_keys(made, inputs)]
    runs = [made.perturbed(inputs) for _ in range(_RUNS)]
    assert len(actual) == len(expected)
    for place, (got, want) in enumerate(zip(actual, expected, strict=True)):
        label = f"result {place} (v{made.results[place]})"
        assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{label}: {got.dtype} {tuple(got.shape)}"
        if not want.is_floating_point():
            assert torch.equal(got, want), f"{label}: {got} instead of {want}"
            continue
        others = torch.stack([run[place] for run in runs]).double() if want.numel() else want.double()[None]
        good = _close(got, want, others)
        for precise in alternatives:
            if precise is not None:
                good |= _close(got, precise[place].to(want.dtype), others)
        if not bool(good.all()):
            at = tuple((~good).nonzero()[0].tolist())
            spread = (others - want.double())[(slice(None), *at)].abs().amax().item()
            precise = alternatives[0]
            raise AssertionError(
                f"{label} at {list(at)}: {got[at].item()!r} instead of {want[at].item()!r}, in float64 "
                f"{precise and precise[place][at].item()!r}, moved by {spread:.3g} when rounded otherwise"
            )


def _close(got: torch.Tensor, want: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Which elements are as near to `want` as rounding explains, which moves it to `others`."""
    info = torch.finfo(got.dtype)
    a, e = got.double(), want.double()
    allowed = _FACTOR * ((others - e).abs().amax(0) + info.eps * e.abs()) + 8 * info.tiny * info.eps
    same = (a == e) | (a.isnan() & e.isnan()) | ((a - e).abs() <= allowed)
    # Overflow or not, a number or none: all of it may hang on the last place.
    finite = others.isfinite()
    return same | (finite.any(0) & ~finite.all(0)) | (others.isnan().any(0) & ~others.isnan().all(0))


def _in_precision(made: Program, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
    """Eager's results in float64; None where the program needs dtypes as they are."""
    values = [x.double() if x.is_floating_point() else x for x in inputs]
    try:
        for step in made.steps:
            if step.operator.path == "Tensor.to" and step.args[1].is_floating_point:
                step = Step(step.operator, (step.args[0], torch.float64), step.kwargs)
            values += step.run(values)
    except RuntimeError:
        return None
    return tuple(values[i] for i in made.results)


def _without_masked_keys(made: Program, inputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...] | None:
    """Eager's results where causal attention does not read masked keys (docs/compatibility.md); None without any."""
    if not any(_is_causal(step) for step in made.steps):
        return None
    values = list(inputs)
    for step in made.steps:
        values += [_causal_attention(*step.operands(values)[:3])] if _is_causal(step) else step.run(values)
    return tuple(values[i] for i in made.results)


def _is_causal(step: Step) -> bool:
    return step.operator.path.endswith("scaled_dot_product_attention") and step.args[5] is True


def _causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention of each query over the keys up to its own position only."""
    attend = torch.nn.functional.scaled_dot_product_attention
    rows = [
        attend(query[..., i : i + 1, :], key[..., : i + 1, :], value[..., : i + 1, :]) for i in range(query.shape[-2])
    ]
    return torch.cat(rows, dim=-2)


def _moved(x: torch.Tensor) -> torch.Tensor:
    """Each element times 1 plus some units in the last place."""
    if not x.is_floating_point():
        return x
    eps = torch.finfo(x.dtype).eps
    factors = 1 + _UNITS * eps * (2 * torch.rand(x.shape, dtype=torch.float64) - 1)
    return (x.double() * factors).to(x.dtype)


def _tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _leaves(value: Any, kind: type) -> list[Any]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, kind)]


def _text(value: Any) -> str:
    if isinstance(value, Ref):
        return f"v{value.index}"
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, list) else str(value)


assert {operator.errors for operator in OPERATORS} == {ROUNDS, MOVES, DECIDES}
