"""A program that times algorithms of kernels on this machine: csrc/probe, with the objects that modules contain."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from aotpack.building import native_sources
from aotpack.building.cache import digest_of
from aotpack.building.temporary import private_folder
from aotpack.costs.shapes import Shape
from aotpack.errors import CompileError
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.cpu.compile import source_units
from aotpack.export.backends.native import Unit, compile_unit

_SUFFIX = ".probe"
_LINK = ("-fopenmp", "-static-libstdc++", "-static-libgcc", "-Wl,--gc-sections", "-Wl,--build-id=none", "-s")
# What a program that hangs may take beyond the time that it was given.
_PATIENCE = 60.0

Samples = dict[str, list[float]]
"""Seconds of each call, by algorithm."""


def probe_program(target: str, halves: frozenset[str], tools: Tools) -> Path:
    """The program for a target, in the build cache.

    Raises:
        CompileError: the compiler failed.
    """
    compiler, cache = tools.compiler, tools.cache
    units = source_units(native_sources.closure([native_sources.probe_source()]), target, compiler, halves=halves)

    def compiled(unit: Unit) -> Path:
        return unit.made.path if unit.made else cache.aside(unit.key, ".o", partial(compile_unit, compiler, unit))

    def link(output: Path) -> None:
        with ThreadPoolExecutor(tools.jobs or len(os.sched_getaffinity(0))) as pool:
            objects = [str(path) for path in pool.map(compiled, units)]
        with private_folder() as folder:
            done = compiler.run([*objects, *_LINK, "-o", str(output)], cwd=folder)
        if done.returncode != 0:
            raise CompileError(f"linking the probe failed:\n{done.stderr[-2000:]}")

    return cache.aside(digest_of(["probe", compiler.identity, *_LINK, *(unit.key for unit in units)]), _SUFFIX, link)


def time_shapes(
    program: Path, shapes: Sequence[Shape], *, threads: int, seconds: float, weights: int
) -> dict[Shape, Samples]:
    """Times the algorithms of shapes in turns, in a process of its own.

    Args:
        program: what `probe_program` returns.
        shapes: the most important first: those for which there is no time are left out.
        threads: of a call.
        seconds: about how long to measure in all.
        weights: bytes of the weights of all shapes together, which decide the cache that they come from.

    Raises:
        OSError: the program cannot be started, or takes far longer than it should.
        ValueError: it failed.
    """
    lines = [f"{threads} {seconds:.3f} {weights}"]
    lines += [f"{shape.operator} {' '.join(map(str, shape.numbers))}" for shape in shapes]
    # Threads that sleep between calls would show how long waking them takes, which modules do not pay.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
    try:
        done = subprocess.run(
            [str(program)],
            input="\n".join(lines) + "\n",
            capture_output=True,
            check=False,
            text=True,
            timeout=seconds + _PATIENCE,
            env=environment,
            cwd="/",
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"the probe ran for more than {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise ValueError(f"the probe ended with status {done.returncode}: {done.stderr.strip()[-300:]}")
    found: dict[Shape, Samples] = {}
    for line in done.stdout.splitlines():
        site, algorithm, nanoseconds = map(int, line.split())
        shape = shapes[site]
        samples = found.setdefault(shape, {name: [] for name in shape.algorithms})
        samples[shape.algorithms[algorithm]].append(nanoseconds * 1e-9)
    return found
