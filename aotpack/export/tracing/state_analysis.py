"""Finds the changed places that the next call depends on, and makes them state of the program."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aotpack.errors import CaptureError
from aotpack.export.ir.rewriter import is_dense
from aotpack.export.torch_compat import pytree
from aotpack.export.tracing.python_state import lines, stand_ins
from aotpack.export.tracing.python_state.held import Held, Piece, initial_tensor
from aotpack.export.tracing.python_state.nodes import ABSENT, Table
from aotpack.export.tracing.python_state.provenance import Computed, Provenance
from aotpack.export.tracing.python_state.snapshot import CONTENTS, Change, Place, current, same, storage_key
from aotpack.export.tracing.python_state.taint import Taint
from aotpack.export.tracing.state import Kept, state_put_back

Call = Callable[[], Any]


def analysed(
    model: Any,
    module: torch.nn.Module,
    arguments: Sequence[Any],
    call: Call,
    provenance: Provenance | None = None,
) -> Held | None:
    """What is to be state of the archive; None where later calls depend on nothing that a call leaves in objects.

    The example call has run before. It is run again if it has changed anything: as it was, from what the first call has
    left, and from that with stand-ins in the place of what has changed.

    Args:
        model: what the user captures.
        module: what is called.
        arguments: the example arguments.
        call: calls `module` with copies of them.
        provenance: of the tensors that `call` returns, if these are fake.

    Raises:
        CaptureError: a later call depends on what cannot be state. The message names the attribute and the line.
    """
    watch = current()
    changes = [] if watch is None else [change for change in watch.changes if not _is_buffer(change)]
    if not changes:
        return None
    return _Analysis(model, module, arguments, call, provenance).held()


def _is_buffer(change: Change) -> bool:
    """Whether it is a buffer that stays one: torch.export follows these."""
    is_table = isinstance(change.place.node, Table)
    return is_table and _meta(change.before) is not None and _meta(change.before) == _meta(change.after)


def _meta(value: Any) -> tuple[object, ...] | None:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else None


def _key(place: Place) -> tuple[int, Any]:
    return id(place.node.owner), place.key


def _only_later(changes: Sequence[Change], again: Sequence[Change]) -> list[Change]:
    """Places that the second call has changed and the first has not, as changes of the first."""
    known = {_key(change.place) for change in changes}
    whole = {id(change.place.node.owner) for change in changes if change.place.key is CONTENTS}
    return [
        Change(change.place, change.before, change.before, change.written)
        for change in again
        if _key(change.place) not in known
        and id(change.place.node.owner) not in whole
        and change.place.key is not CONTENTS
        and not _is_buffer(change)
    ]


@dataclass(frozen=True)
class _Outcome:
    """What a call returned; `leaves` is None where it failed."""

    leaves: list[Any] | None

    def equals(self, other: _Outcome) -> bool:
        if self.leaves is None or other.leaves is None or len(self.leaves) != len(other.leaves):
            return False
        return all(_equal(a, b) for a, b in zip(self.leaves, other.leaves, strict=True))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if _meta(a) != _meta(b):
            return False
        if a.is_floating_point() or a.is_complex():
            return bool(((a == b) | ((a != a) & (b != b))).all())
        return torch.equal(a, b)
    if isinstance(a, Computed):
        return bool(a == b)
    return a is b or same(a, b)


class _Analysis:
    def __init__(
        self,
        model: Any,
        module: torch.nn.Module,
        arguments: Sequence[Any],
        call: Call,
        provenance: Provenance | None,
    ) -> None:
        self._model = model
        self._module = module
        self._arguments = arguments
        self._call = call
        self._provenance = provenance
        self._random = torch.random.get_rng_state()

    def held(self) -> Held | None:
        pieces: list[Piece] = []
        wrong: list[tuple[Change, str]] = []
        with torch.random.fork_rng(devices=[]), self._put_back() as kept:
            data = [*pytree.tree_leaves(self._arguments), *self._module.buffers()]
            with Taint(data) as self._taint:
                self._run()
            changes = [change for change in kept.changes() if not _is_buffer(change)]
            # From here on the state is what the first call has left.
            with self._put_back() as again:
                self._wanted = self._run()
                changes += _only_later(changes, again.changes())
                self._later = {id(c): c.place.value() for c in changes}
                self._rewritten = {_key(c.place) for c in again.changes() if c.written}
            if self._wanted.leaves is None:
                wrong = [(c, "the example call fails when it is repeated") for c in changes]
            else:
                pieces, wrong = self._sorted(changes)
        wrong += self._not_as_filled(changes, pieces)
        if wrong:
            self._refuse(wrong)
        return Held(pieces) if pieces else None

    def _put_back(self) -> contextlib.AbstractContextManager[Kept]:
        return state_put_back(self._module, None if self._provenance is None else self._provenance.writes())

    def _run(self) -> _Outcome:
        torch.random.set_rng_state(self._random)
        try:
            leaves = pytree.tree_leaves(self._call())
        except CaptureError:
            raise
        except Exception:
            return _Outcome(None)
        if any(stand_ins.holds_one(leaf) for leaf in leaves):
            return _Outcome(None)
        return _Outcome([self._result(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves])

    def _result(self, tensor: torch.Tensor) -> torch.Tensor | Computed:
        return tensor.detach().clone() if self._provenance is None else self._provenance.of(tensor)

    # ---- which places matter ----------------------------------------------------------------------------------------

    def _sorted(self, changes: list[Change]) -> tuple[list[Piece], list[tuple[Change, str]]]:
        """What is state, and what cannot be and why."""
        read = self._read(changes)
        unread = [c for c in changes if c not in read]
        wrong = [(c, "only the first call sees its original value") for c in self._decisive(unread)]
        once = [c for c in read if self._is_set_once(c)]
        decisive = self._decisive(once)
        rest = [c for c in read if c not in once or c in decisive]
        pieces: list[Piece] = []
        for change in rest:
            found = self._piece(change, rest)
            if isinstance(found, Piece):
                pieces.append(found)
            elif found is not None:
                wrong.append((change, found))
        return pieces, wrong

    def _read(self, changes: list[Change]) -> list[Change]:
        """The places that a second call reads before it writes them."""
        read: list[Change] = []
        suspects = changes
        while suspects:
            touched, outcome = self._with_stand_ins(suspects)
            if not touched and outcome.equals(self._wanted):
                break
            if not touched:
                touched = [c for c in suspects if not self._is_unread(c)] or suspects
            read += touched
            suspects = [c for c in suspects if c not in touched]
        return read

    def _is_unread(self, change: Change) -> bool:
        touched, outcome = self._with_stand_ins([change])
        return not touched and outcome.equals(self._wanted)

    def _with_stand_ins(self, changes: Sequence[Change]) -> tuple[list[Change], _Outcome]:
        """Those whose stand-ins a second call has touched or passed on, and what it returned."""
        touched: set[int] = set()
        by_place = {id(change.place): change for change in changes}
        with self._put_back() as kept:
            own = stand_ins.install(
                [c.place for c in changes], kept.snapshot, lambda place: touched.add(id(by_place[id(place)]))
            )
            outcome = self._run()
            for other in kept.changes():
                # A value that is kept elsewhere may be read later.
                place = other.place
                if (id(place.node.owner), place.key) not in own and stand_ins.holds_one(other.after):
                    outcome = _Outcome(None)
        return [c for c in changes if id(c) in touched], outcome

    def _decisive(self, changes: Sequence[Change]) -> list[Change]:
        """Those on which it depends what a second call returns: it finds them as the first call has found them."""
        if not changes or self._finding_old(changes).equals(self._wanted):
            return []
        return [c for c in changes if not self._finding_old([c]).equals(self._wanted)] or list(changes)

    def _finding_old(self, changes: Sequence[Change]) -> _Outcome:
        with self._put_back():
            for change in changes:
                if change.place.key is CONTENTS:
                    change.place.node.restore(change.before)
                elif not change.written:
                    change.place.put(change.before)
            return self._run()

    def _is_set_once(self, change: Change) -> bool:
        """Whether the first call sets a place, from nothing but sizes and constants, and the second leaves it."""
        if change.place.key is CONTENTS:
            return False
        if change.written or _key(change.place) in self._rewritten or not same(change.after, self._later[id(change)]):
            return False
        return change.after not in self._taint and not self._taint.numbers

    # ---- how they are represented -----------------------------------------------------------------------------------

    def _piece(self, change: Change, others: Sequence[Change]) -> Piece | str | None:
        """The state that a place becomes, or why it cannot be state; None where another place stands for it."""
        place, before, after, later = change.place, change.before, change.after, self._later[id(change)]
        if place.key is CONTENTS:
            return "its contents change with each call"
        if isinstance(place.node, Table):
            return f"a buffer that is {_shown(before)} before the first call, {_shown(after)} after it"
        if before is ABSENT and isinstance(place.node.owner, collections.Counter):
            before = 0
        if change.written and later is before and isinstance(before, torch.Tensor):
            same_tensor = [c for c in others if c.before is before and c.written]
            if same_tensor[0] is not change:
                return None
            places = tuple(c.place for c in same_tensor)
            return Piece(places, pytree.tree_structure(before), (before.detach(),), (False,), in_place=True)
        if _is_number(before) and _meta(after) is not None:
            before = torch.full_like(after, before).detach()
        leaves, trees = zip(*map(pytree.tree_flatten, (before, after, later)), strict=True)
        if trees[0] != trees[1] or trees[1] != trees[2]:
            return f"{_shown(before)} before the first call, {_shown(after)} after it, {_shown(later)} after the second"
        made = []
        for i, values in enumerate(zip(*leaves, strict=True)):
            tensor = self._initial(f"{place.name}.{i}", change, others, *values)
            if isinstance(tensor, str):
                return tensor
            made.append(tensor)
        return Piece((place,), trees[0], tuple(made), tuple(_is_number(value) for value in leaves[0]))

    def _initial(
        self, name: str, change: Change, others: Sequence[Change], before: Any, after: Any, later: Any
    ) -> torch.Tensor | str:
        """The tensor that holds a value, or why none can."""
        if all(map(_is_number, (before, after, later))):
            is_float = any(isinstance(value, float) for value in (before, after, later))
            made = torch.tensor(before, dtype=torch.float64 if is_float else torch.int64)
            return initial_tensor(self._model, name, before, made)
        if _meta(before) is None or not _meta(before) == _meta(after) == _meta(later):
            return f"{_shown(before)} before the first call, {_shown(after)} after it, {_shown(later)} after the second"
        used = [storage_key(t) for c in others for t in pytree.tree_leaves(c.before) if isinstance(t, torch.Tensor)]
        used += [storage_key(t) for t in (*self._module.parameters(), *self._module.buffers())]
        if is_dense(before) and used.count(storage_key(before)) <= 1:
            return torch.Tensor.detach(before)
        return initial_tensor(self._model, name, before, before.detach().clone())

    def _not_as_filled(self, changes: Sequence[Change], pieces: Sequence[Piece]) -> list[tuple[Change, str]]:
        """The numbers for which a tensor full of them does something else."""
        filled = [p for p in pieces if not p.numbers[0] and _is_number(p.places[0].value())]
        if not filled:
            return []
        with self._put_back(), torch.random.fork_rng(devices=[]):
            wanted = self._run()
        with self._put_back(), torch.random.fork_rng(devices=[]):
            for piece in filled:
                piece.places[0].put(piece.initial[0])
            if self._run().equals(wanted):
                return []
        places = [piece.places[0] for piece in filled]
        return [(c, f"{c.before!r} before the first call, a tensor after it") for c in changes if c.place in places]

    # ---- refusals ---------------------------------------------------------------------------------------------------

    def _refuse(self, wrong: Sequence[tuple[Change, str]]) -> None:
        with self._put_back(), torch.random.fork_rng(devices=[]):
            found = lines.changing([change.place for change, _ in wrong], self._run)
        texts = [f"{c.place.label} ({why}){line}" for (c, why), line in zip(wrong, found, strict=True)]
        shown = "\n".join(dict.fromkeys(texts[:10]))
        what = (
            "a later call depends on a value that an earlier call left in"
            if len(texts) == 1
            else ("later calls depend on values that earlier calls left in:\n ")
        )
        raise CaptureError(f"{what} {shown}", hint=_hint(wrong))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor {str(value.dtype).removeprefix('torch.')}[{', '.join(map(str, value.shape))}]"
    if value is None or value is ABSENT or isinstance(value, (bool, int, float, str)):
        return "not there" if value is ABSENT else repr(value)
    return f"a {type(value).__name__}"


def _hint(wrong: Sequence[tuple[Change, str]]) -> str:
    if any(c.before is None or c.before is ABSENT for c, _ in wrong):
        return (
            "set its first value before capture: in __init__, or by one call of the model; a tensor that keeps its "
            "shape and dtype becomes state of the archive"
        )
    return "keep it in a tensor that keeps its shape and dtype (register_buffer), which becomes state of the archive"
