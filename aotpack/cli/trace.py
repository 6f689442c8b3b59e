"""A call as Chrome trace events, which Perfetto and chrome://tracing open: `aotpack inspect --trace`.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aotpack.cli.profiling import ProfileResult

_PROCESS = 1
# Rows of the timeline.
_CALL, _STEPS, _KERNELS = 1, 2, 3


def trace_events(result: ProfileResult) -> dict[str, Any]:
    """The trace of the median call: complete events in microseconds, on a row for the call, one for steps and one for
    kernels.
    """
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "entry": result.entry,
            "variant": result.variant,
            "target": result.target,
            "threads": str(result.threads),
            "calls": str(result.calls),
        },
        "traceEvents": [*_names(result), *_parts(result)],
    }


def _names(result: ProfileResult) -> Iterator[dict[str, Any]]:
    title = result.entry if result.variant == "default" else f"{result.entry}[{result.variant}]"
    yield _about("process_name", 0, {"name": title})
    for row, name in ((_CALL, "call"), (_STEPS, "steps"), (_KERNELS, "kernels")):
        yield _about("thread_name", row, {"name": name})
        yield _about("thread_sort_index", row, {"sort_index": row})


def _about(what: str, row: int, args: Mapping[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": _PROCESS, "tid": row, "ts": 0, "args": dict(args)}


def _parts(result: ProfileResult) -> Iterator[dict[str, Any]]:
    kernels = {(kernel.step, kernel.kernel): kernel for kernel in result.kernels}
    for step, kernel, begin, end in result.timeline:
        args: dict[str, Any] = {}
        if step is None:
            name, row = result.entry, _CALL
        elif kernel is None:
            name, row = f"step {step + 1} on {result.steps[step].device}", _STEPS
        else:
            known = kernels[step, kernel]
            name, row = known.name, _KERNELS
            args = {"operators": ", ".join(known.operators), "nodes": ", ".join(known.nodes), "step": step + 1}
        yield {
            "ph": "X",
            "name": name,
            "cat": ("call", "step", "kernel")[row - 1],
            "pid": _PROCESS,
            "tid": row,
            "ts": begin * 1e6,
            "dur": max(0.0, end - begin) * 1e6,
            "args": args,
        }
