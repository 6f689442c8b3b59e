"""Fewer runs of the garbage collector while a build runs, and as before after it."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

import pytest

from aotpack.building.collector import no_collections, rare_collections


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def collections() -> int:
    return sum(generation["collections"] for generation in gc.get_stats())


def make(count: int) -> list[list[int]]:
    return [[] for _ in range(count)]


def test_collections_are_rare_while_active() -> None:
    before = collections()
    with rare_collections():
        kept = make(40_000)
        assert collections() - before < 5
    assert gc.get_threshold() == (700, 10, 10)
    kept += make(40_000)
    assert collections() - before > 20


def test_an_error_restores() -> None:
    with pytest.raises(ValueError, match="x"), rare_collections():
        raise ValueError("x")
    assert gc.get_threshold() == (700, 10, 10)


def test_the_last_of_several_threads_restores() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with rare_collections():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with rare_collections():
        thread.start()
        assert inside.wait(10)
        within = gc.get_threshold()
    assert gc.get_threshold() == within != (700, 10, 10)
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (200_000, 5, 5)])
def test_what_the_caller_has_chosen_stays(chosen: tuple[int, int, int]) -> None:
    """0 is no collection at all."""
    gc.set_threshold(*chosen)
    with rare_collections():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_no_collections_while_active_and_as_before_after_it() -> None:
    gc.unfreeze()
    before = collections()
    with contextlib.suppress(KeyError), no_collections(ageing=True):
        kept = make(40_000)
        assert collections() == before
        raise KeyError  # after errors, too
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    young = gc.get_objects(generation=0)
    assert not {id(each) for each in young} & {id(each) for each in kept}
    del young
    kept += make(40_000)
    assert collections() > before


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with no_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_was_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with no_collections(ageing=True):
            make(10)
        # Some are freed meanwhile, by this thread or others.
        assert gc.get_freeze_count() > count // 2
    finally:
        gc.unfreeze()
