"""The process that imports cases of onnx's backend test suite, builds archives of them and runs these without torch."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch

from aotpack.errors import AotpackError, BuildError, UnsupportedOperatorError
from aotpack.export import BuildOptions, aot_export, build_archive
from aotpack.export.onnx.base.errors import NotConstantError
from aotpack.export.onnx.importer import OnnxSource, load_onnx
from tests.conformance.onnx_cases import OnnxCase, cases, mismatch, tensor
from tests.conformance.task import BUILD_ERROR, CALL_ERROR, CRASH, OK, REFUSED, WRONG
from tests.support.torchless import Torchless, receive, send

Endings = dict[str, tuple[str, str]]

# Results are compared here.
_OPTIONS = partial(BuildOptions, check=False, goldens=False, jobs=1, opt_level=1)


class Joined(torch.nn.Module):
    """Modules that are called with a list of arguments each."""

    def __init__(self, modules: list[torch.nn.Module]) -> None:
        super().__init__()
        for i, module in enumerate(modules):
            self.add_module(f"case{i}", module)

    def forward(self, *calls: Any) -> Any:
        return [list(module(*call).values()) for module, call in zip(self.children(), calls, strict=True)]


class Case:
    """A case that was imported: its module, and the calls of it."""

    def __init__(self, case: OnnxCase, constants: dict[str, Any] | None = None) -> None:
        self.case = case
        sets = [([tensor(v) for v in inputs], [tensor(v) for v in outputs]) for inputs, outputs in case.sets]
        self.constants: dict[str, Any] = dict(constants or {})
        names = [v.name for v in case.model.graph.input]
        own = {t.name for t in case.model.graph.initializer}
        if len(sets[0][0]) < len(names):
            names = [name for name in names if name not in own]
        # Inputs with initializers are constants.
        given = [i for i, name in enumerate(names) if name not in own]
        sets = [([inputs[i] for i in given if i < len(inputs)], outputs) for inputs, outputs in sets]
        names = [names[i] for i in given]
        while True:
            try:
                kept = [i for i, name in enumerate(names) if name not in self.constants]
                args = [sets[0][0][i] for i in kept if i < len(sets[0][0])]
                self.source: OnnxSource = load_onnx(case.model, args, constants=self.constants)
                self.sets = [([inputs[i] for i in kept if i < len(inputs)], outputs) for inputs, outputs in sets]
                self.found = [list(self.source.module(*inputs).values()) for inputs, _ in self.sets]
                return
            except NotConstantError:
                # What has to be known when the archive is built: small inputs behind the first, then it too.
                left = {
                    name: sets[0][0][i]
                    for i, name in enumerate(names)
                    if name not in self.constants and _is_small(sets[0][0][i])
                }
                if not left:
                    raise
                if names[0] in left and len(left) > 1:
                    del left[names[0]]
                self.constants |= left

    def judged(self, found: Any, number: int = 0) -> str | None:
        expected = self.sets[number][1]
        if len(found) < len(expected):
            return f"{len(found)} outputs, not {len(expected)}"
        for i, (value, wanted) in enumerate(zip(found, expected, strict=False)):
            problem = mismatch(value, wanted, self.case.rtol, self.case.atol, f"output {i}")
            if problem:
                return problem
        return None


def _with_constants(case: Case) -> Case | None:
    """The case with its small inputs behind the first as constants; None if it has none."""
    if case.constants:
        return None
    names, args = case.source.module.inputs, case.sets[0][0]
    constants = {name: args[i] for i, name in enumerate(names) if i and i < len(args) and _is_small(args[i])}
    return Case(case.case, constants) if constants else None


def _is_small(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() <= 64 and value.dim() <= 1


class OnnxWorker:
    """Runs cases; see `onnx_backend`."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        self._folder = folder
        self._cache = cache
        self._runner: Torchless | None = None

    def run(self, names: list[str], eager: bool) -> Endings:
        """How each case ends."""
        endings: Endings = {}
        ready: dict[str, Case] = {}
        for name in names:
            try:
                with torch.no_grad():
                    case = Case(cases()[name])
                problem = next((p for i, f in enumerate(case.found) if (p := case.judged(f, i))), None)
            except UnsupportedOperatorError as error:
                endings[name] = (REFUSED, "no operator: " + ", ".join(error.operators))
            except AotpackError as error:
                endings[name] = (REFUSED, _line(error))
            except Exception as error:
                endings[name] = (CALL_ERROR, f"{type(error).__name__}: {_line(error)}")
            else:
                if problem:
                    endings[name] = (WRONG, f"in eager: {problem}")
                elif eager:
                    endings[name] = (OK, "constants" if case.constants else "")
                else:
                    ready[name] = case
        self._together(list(ready.items()), endings)
        return endings

    def _together(self, ready: list[tuple[str, Case]], endings: Endings) -> None:
        """Builds one archive of cases, or of each half of them."""
        if not ready:
            return
        failure = self._built([case for _, case in ready], [name for name, _ in ready], endings)
        if failure is None:
            return
        if len(ready) == 1:
            name, case = ready[0]
            again = _with_constants(case) if failure[0] == BUILD_ERROR else None
            second = failure if again is None else self._built([again], [name], endings)
            if second is not None:
                endings[name] = failure
            return
        half = len(ready) // 2
        self._together(ready[:half], endings)
        self._together(ready[half:], endings)

    def _built(self, group: list[Case], names: list[str], endings: Endings) -> tuple[str, str] | None:
        path = self._folder / f"{os.getpid()}.aotpack"
        try:
            with torch.no_grad():
                module = Joined([case.source.module for case in group])
                program = aot_export(module, [list(case.sets[0][0]) for case in group])
            build_archive(program, path, options=_OPTIONS(cache_dir=self._cache))
        except BuildError as error:
            return (REFUSED if "unsupported" in type(error).__name__.lower() else BUILD_ERROR, _line(error))
        except Exception as error:
            return (BUILD_ERROR, f"{type(error).__name__}: {_line(error)}")
        try:
            model = self._torchless().load(path, num_threads=1)
            found = model(*[list(case.sets[0][0]) for case in group])
        except (EOFError, BrokenPipeError):
            self._runner = None
            return (CRASH, "the process crashes")
        except (AotpackError, MemoryError) as error:
            return (CALL_ERROR, _line(error))
        finally:
            path.unlink(missing_ok=True)
        for name, case, values in zip(names, group, found, strict=True):
            problem = case.judged(values)
            endings[name] = (WRONG, problem) if problem else (OK, "constants" if case.constants else "")
        return None

    def _torchless(self) -> Torchless:
        if self._runner is None:
            self._runner = Torchless({"OMP_WAIT_POLICY": "passive"})
        return self._runner


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " ".join(lines[:2]) if lines and lines[0].endswith(":") else (lines or [type(error).__name__])[0]
    return re.sub(r"0x[0-9a-f]+|/\S+/", "…", text)[:300]


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cache = Path(sys.argv[1]) if sys.argv[1] else None
    with tempfile.TemporaryDirectory(prefix="aotpack-onnx-") as folder:
        worker = OnnxWorker(Path(folder), cache)
        while True:
            try:
                command, arguments = receive(requests)
            except EOFError:
                return
            with contextlib.redirect_stdout(sys.stderr):
                answer = getattr(worker, command)(*arguments)
            send(answers, answer)


if __name__ == "__main__":
    main()
