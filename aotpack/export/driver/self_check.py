"""A finished archive runs its own example calls before it replaces the output file.

They run in another process, without torch: a fault in the compiled code is an error of the build, not its end. That
process (aotpack/cli/golden_worker.py) stays for later builds, and ends by itself after a minute without any.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aotpack.archive import Golden
from aotpack.errors import GoldenError
from aotpack.export.ir.units import unit_label
from aotpack.targets import BY_NAME

_HINT = (
    "please report this together with the model; without=('all',) (--without all) shows whether a pass causes the "
    "error, and check=False (--no-check) writes the archive anyway"
)
_PACKAGES = str(Path(__file__).resolve().parents[3])
_START = f"import sys; sys.path.append({_PACKAGES!r}); from aotpack.cli.golden_worker import main; main()"


@dataclass(frozen=True)
class Example:
    """An example call with eager's answer.

    Attributes:
        entry, variant: what it is an example of.
        golden: where its tensors are in the archive.
        open: why another answer than eager's may be as right; empty where none is.
        data: the bytes that these places are of, where the archive does not have them.
    """

    entry: str
    variant: str
    golden: Golden
    open: tuple[str, ...] = ()
    data: bytes | None = None


@dataclass(frozen=True)
class CheckReport:
    """What running the example calls of an archive showed.

    Attributes:
        target: the module that ran; None when none did.
        outputs: how many outputs were compared with eager's.
        error: the greatest error among them, relative to the greatest magnitude of the output.
        skipped: why nothing ran; None when it did.
        open: by entry and variant, why an answer that differs from eager's was accepted. Such an example is not kept.
        unchecked: entries and variants, `"forward"` or `"forward[batch=1]"`, of which nothing was compared.
    """

    target: str | None = None
    outputs: int = 0
    error: float = 0.0
    skipped: str | None = None
    open: dict[str, str] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()


class _Worker:
    """The process, started when it is needed. Serves one request at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def start(self) -> None:
        """Has the process start, if it does not run."""
        with self._lock:
            self._running()

    def ask(self, path: Path, examples: Sequence[Example]) -> dict[str, Any]:
        """The process's answer.

        Raises:
            GoldenError: it died.
        """
        sent = pickle.dumps((os.fspath(path.resolve()), [(e.entry, e.variant, e.golden, e.data) for e in examples]))
        with self._lock:
            for again in (True, False):
                process = self._running()
                try:
                    answer = _exchange(process, sent)
                except BaseException:
                    process.kill()
                    self._close()
                    raise
                if answer is not None:
                    return answer
                self._close()
                # It may have ended for want of requests just before this one.
                if process.returncode != 0 or not again:
                    break
        raise GoldenError(
            f"the archive crashes in its example call: its process {_ended(process.returncode)}",
            hint=_HINT,
        )

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._owner != os.getpid():
            # After a fork it is the parent's.
            self._process = None
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"OMP_WAIT_POLICY": "passive"} | dict(os.environ),
                cwd="/",
                start_new_session=True,
            )
            self._owner = os.getpid()
        return self._process

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        for stream in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        process.wait()


def _exchange(process: subprocess.Popen[bytes], sent: bytes) -> dict[str, Any] | None:
    """The answer to a request; None when the process ends instead."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(struct.pack("<Q", len(sent)) + sent)
        process.stdin.flush()
    except BrokenPipeError:
        return None
    head = process.stdout.read(8)
    if len(head) < 8:
        return None
    answer: dict[str, Any] = json.loads(process.stdout.read(struct.unpack("<Q", head)[0]))
    return answer


def _ended(status: int | None) -> str:
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
    return f"ended with status {status}"


_worker = _Worker()
atexit.register(_worker.close)


def prepare() -> None:
    """Starts what `check` needs, to run beside other work. Costs milliseconds."""
    with contextlib.suppress(OSError):
        _worker.start()


def check(path: Path, examples: Sequence[Example], labels: Sequence[str], targets: Sequence[str] = ()) -> CheckReport:
    """Runs the example calls of the archive at `path`.

    Args:
        path: the archive.
        examples: of its entries and variants, as far as these have any.
        labels: all entries and variants, as `unit_label` names them.
        targets: what the archive was built for.

    Raises:
        GoldenError: an output is not eager's, or a call fails.
    """
    if not examples:
        return CheckReport(skipped="there is no deterministic example call", unchecked=tuple(labels))
    if targets and all(BY_NAME[target].gpu is not None for target in targets):
        reason = f"the archive runs on devices of {', '.join(targets)} only; `aotpack verify` checks it on one of them"
        return CheckReport(skipped=reason, unchecked=tuple(labels))
    try:
        answer = _worker.ask(path, examples)
    except OSError as error:
        return CheckReport(skipped=f"the process could not be started: {error}", unchecked=tuple(labels))
    if "skipped" in answer:
        return CheckReport(skipped=answer["skipped"], unchecked=tuple(labels))
    if "failure" in answer:
        raise GoldenError(f"the archive cannot run: {answer['failure']}", hint=_HINT)
    target, outputs, ran = answer["target"], [], set()
    accepted: dict[str, str] = {}
    for example, result in zip(examples, answer["results"], strict=True):
        where = f"entry {result['entry']!r}, variant {result['variant']!r}, target {target}"
        if "failure" in result:
            raise GoldenError(f"the archive fails in its example call: {where}: {result['failure']}", hint=_HINT)
        if example.open and not all(output["ok"] for output in result["outputs"]):
            accepted[unit_label(example.entry, example.variant)] = "; ".join(example.open)
            continue
        ran.add(unit_label(result["entry"], result["ran"]))
        outputs += [(where, output) for output in result["outputs"]]
    wrong = [(where, output) for where, output in outputs if not output["ok"]]
    if wrong:
        lines = "".join(f"\n  {where}, {_described(output)}" for where, output in wrong[:8])
        more = f"\n  and {len(wrong) - 8} more" if len(wrong) > 8 else ""
        raise GoldenError(f"the outputs of the example call differ from eager PyTorch's:{lines}{more}", hint=_HINT)
    greatest = max((output["error"] for _, output in outputs), default=0.0)
    unchecked = tuple(known for known in labels if known not in ran)
    return CheckReport(target, len(outputs), greatest, None, accepted, unchecked)


def _described(output: dict[str, Any]) -> str:
    if output["problem"] is not None:
        return f"output {output['name']!r}: {output['problem']}"
    allowed = "none is allowed" if not output["tolerance"] else f"allowed is {output['tolerance']:.1e}"
    return f"output {output['name']!r}: the error is {output['error']:.1e} of the largest value, {allowed}"
