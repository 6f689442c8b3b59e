"""Pipelines: the stages of an entry on groups of CPUs, with several calls under way."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from aotpack.runtime._native import NativePipeline
from aotpack.runtime.cpus import CpuGroup, parse_cpus

if TYPE_CHECKING:
    from aotpack.runtime._native import NativeCall, Runner, Tensor
    from aotpack.spec import Signature


@dataclass(frozen=True)
class Worker:
    """A thread that runs a stage.

    Attributes:
        stage: the stage, from 0.
        cpus: the CPUs that it is bound to, such as "0-3,8"; None: a share of the CPUs of the thread that makes the
            pipeline, which are divided evenly among such workers.
        num_threads: threads per step; 0: one per CPU, within the CPU quota of the process.
    """

    stage: int
    cpus: CpuGroup | None = None
    num_threads: int = 0


class Call:
    """A call that a pipeline runs. Thread-safe."""

    def __init__(self, pipeline: Pipeline, native: NativeCall) -> None:
        # Which goes on as long as its calls are wanted.
        self._pipeline = pipeline
        self._native = native
        self._results: list[Any] | None = None

    def done(self) -> bool:
        """Whether the call has ended."""
        return self._native.wait(0)

    def result(self, timeout: float | None = None) -> Any:
        """Waits for the result, which has the structure of the model's result.

        Args:
            timeout: in seconds; None: until the call has ended.

        Raises:
            TimeoutError: the call has not ended in time.
            ExecutionError, OutOfMemoryError: as for a call of the model.
            CallCancelledError: the pipeline was closed before the call had ended.
        """
        from aotpack.runtime.structure import unflatten

        return unflatten(self._pipeline.signature.out_spec, self.outputs(timeout))

    def outputs(self, timeout: float | None = None) -> list[Any]:
        """The same as a list, in the order of `signature.outputs`."""
        if timeout is not None and not self._native.wait(max(timeout, 0)):
            raise TimeoutError(f"the call has not ended within {timeout} seconds")
        self._native.wait(-1)
        with self._pipeline._taking:
            if self._results is None:
                self._results = self._native.take()
            return self._results


class Pipeline:
    """Runs the stages of an entry on threads of its own. Several calls are under way at the same time, each in another
    stage. Created by `Model.pipeline`; a context manager that closes it.

    Each stage starts calls in the order in which they were submitted. The error of a call reaches that call only.
    Thread-safe. A pipeline does not survive a fork: in the child, its methods raise InputError.
    """

    def __init__(
        self,
        entry: Runner,
        signature: Signature,
        *,
        workers: Sequence[Worker] | None = None,
        groups: Sequence[CpuGroup] | None = None,
        max_in_flight: int | None = None,
        seed: int | None = None,
    ) -> None:
        from threading import Lock

        self.num_stages = entry._num_stages
        self.workers = tuple(_workers(workers, groups, self.num_stages))
        if max_in_flight is not None and max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, got {max_in_flight}")
        given = [
            (worker.stage, [] if worker.cpus is None else parse_cpus(worker.cpus), worker.num_threads)
            for worker in self.workers
        ]
        seed = None if seed is None else seed & 0xFFFFFFFFFFFFFFFF
        self._native = NativePipeline(entry, given, max_in_flight or 0, seed)
        self._taking = Lock()
        self.signature = signature
        self.max_in_flight = max_in_flight or 2 * len(self.workers)
        # Threads must not run the model while the interpreter ends.
        self._finalizer = weakref.finalize(self, _cancel, self._native)

    def submit(self, *args: Any, **kwargs: Any) -> Call:
        """Starts a call with the arguments of the source model. Waits while `max_in_flight` calls are under way.

        Arrays are copied, so they may change afterwards. Arrays that the model writes to are not: do not use them until
        the call has ended.

        Raises:
            InputError: an argument does not match the signature.
            CallCancelledError: the pipeline is closed.
        """
        from aotpack.runtime.structure import flatten

        return self.submit_inputs(flatten(self.signature.in_spec, args, kwargs))

    def submit_inputs(self, inputs: Sequence[Any]) -> Call:
        """The same with a flat list of arrays and scalars, in the order of `signature.inputs`."""
        return Call(self, self._native.submit(list(inputs)))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a call and waits for its result."""
        return self.submit(*args, **kwargs).result()

    def map(self, arguments: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """The results of calls with these positional arguments, in order. Takes items from `arguments` only as far
        ahead as calls fit into the pipeline. The error of a call is raised in its place.
        """
        pending: deque[Call] = deque()
        for args in arguments:
            if len(pending) >= self.max_in_flight:
                yield pending.popleft().result()
            pending.append(self.submit(*args))
        while pending:
            yield pending.popleft().result()

    def close(self, *, cancel: bool = False) -> None:
        """Accepts no more calls, and returns when all have ended.

        Args:
            cancel: calls that wait for their next stage end with CallCancelledError.
        """
        self._native.close(cancel)

    def state(self) -> dict[str, Tensor]:
        """Copies of the tensors that the model writes to, by name, after all calls that were submitted before."""
        return self._native.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Sets the state from arrays by name, as returned by `state()`, for calls that are submitted later.

        Raises:
            WeightsError: a name, dtype or shape does not match; the state is unchanged.
        """
        from aotpack.runtime.named_tensors import by_name

        names, arrays = by_name(state)
        self._native.load_state(names, arrays)

    def reset(self) -> None:
        """Resets the state to its initial values, for calls that are submitted later."""
        self._native.reset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close(cancel=kind is not None)


def _cancel(native: NativePipeline) -> None:
    from aotpack.errors import InputError

    with contextlib.suppress(InputError):  # in the child of a fork, which has no threads to end
        native.close(True)


def _workers(workers: Sequence[Worker] | None, groups: Sequence[CpuGroup] | None, num_stages: int) -> list[Worker]:
    if workers is not None and groups is not None:
        raise ValueError("pass either workers or groups")
    if workers is not None:
        return list(workers)
    if groups is None:
        return [Worker(stage) for stage in range(num_stages)]
    if isinstance(groups, str) or not groups or len(groups) % num_stages:
        raise ValueError(
            f"groups must have one group of CPUs for each of the {num_stages} stages, or as many for each further copy "
            f"of all stages; got {groups!r}"
        )
    return [Worker(i % num_stages, group) for i, group in enumerate(groups)]
