"""The backends, and which of them a target belongs to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from aotpack.export.backends.backend import Backend, Tools
from aotpack.export.backends.cpu.backend import CpuBackend
from aotpack.export.backends.cuda.backend import CudaBackend
from aotpack.export.backends.precompiled import compilers_waiting
from aotpack.export.ir.program import Program
from aotpack.targets import BY_NAME

BACKENDS: tuple[Backend, ...] = (CpuBackend(), CudaBackend())


def by_backend(targets: Sequence[str]) -> list[tuple[Backend, tuple[str, ...]]]:
    """Each backend that is asked for, with its targets: both in the order of `targets`."""
    known = {backend.name: backend for backend in BACKENDS}
    groups: dict[str, list[str]] = {}
    for target in targets:
        groups.setdefault(BY_NAME[target].backend, []).append(target)
    return [(known[name], tuple(group)) for name, group in groups.items()]


def on_host(targets: Sequence[str]) -> list[tuple[Backend, tuple[str, ...]]]:
    """The same for code that runs on the host whatever the target: the targets of CPUs, for those of other devices the
    one beside them.
    """
    return by_backend(list(dict.fromkeys(BY_NAME[target].companion or target for target in targets)))


@contextmanager
def ready(targets: Sequence[str], tools: Tools, programs: Sequence[Program]) -> Iterator[Tools]:
    """The tools, with compilers that wait for the code of the first target, which is compiled first: at most as many
    as may run, and none where the code of `programs` does not include what they would read.
    """
    backend, group = by_backend(targets)[0]
    compiler = tools.for_target(group[0]).compiler
    headers = backend.headers(group[0], tools) if backend.expects_headers(group[0], programs) else ()
    with compilers_waiting(headers[: tools.jobs], tools.cache, compiler) as waiting:
        yield replace(tools, waiting=waiting)
