"""`python -m tests.conformance.training`: models of full size, trained by archives, against eager.

Each model makes the same steps in eager, in an archive, and in eager with higher precision: float64, or float32 where
the others have autocast. The error of a tensor is the greatest difference to eager, of the greatest magnitude in the
tensor. Where rounding alone makes eager differ by more than 1e-5 from higher precision, no archive can be closer: Adam
divides by the roots of moments, so that an element whose gradient is rounding noise moves as far as any other. An
archive is wrong in a tensor with an error of more than 1e-5 if it is also more than ten times as far from the higher
precision as eager is. That distance leaves out the last hundredth of the elements, which Adam magnifies. A single
element that is magnified early moves whole tensors behind it, in eager as well: so eager is the farther of two, of
which the second has the rows of each batch in reverse order, which changes nothing but rounding. Tensors whose value in
eager is noise as a whole, such as biases of keys in attention, whose gradient is zero, are counted apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import aotpack
from aotpack.export import BuildOptions, TrainingOptions, aot_export, build_archive
from tests.conformance.training_models import MODELS, Training, made
from tests.support.torchless import ROOT

TOLERANCE = 1e-5
# How many times as far from the higher precision as eager an archive may be, and of which part of the elements.
BEYOND = 10.0
PART = 0.99
# Of the magnitude of a tensor: if eager is farther from the higher precision, its value is noise.
NOISE = 0.1
EAGER, REVERSED, HIGHER, ARCHIVE = "eager", "reversed", "higher", "archive"


def _batches(training: Training, steps: int) -> Iterator[Any]:
    random = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield training.batch(random)


def _autocast(training: Training, *, wanted: bool = True) -> contextlib.AbstractContextManager[Any]:
    on = training.autocast and wanted
    return torch.autocast("cpu", dtype=torch.bfloat16) if on else contextlib.nullcontext()


def _eager(training: Training, steps: int, state: Path, *, higher: bool, reverse: bool) -> list[float]:
    model, losses = training.model, []
    wide = higher and not training.autocast
    if wide:
        model.double()
    optimizer = training.optimizer([parameter for parameter in model.parameters() if parameter.requires_grad])
    for args, targets in _batches(training, steps):
        if reverse:
            args, targets = (tuple(value.flip(0) for value in values) for values in (args, targets))
        given = [value.double() if wide and value.is_floating_point() else value for value in args]
        optimizer.zero_grad()
        with _autocast(training, wanted=not higher):
            loss = training.loss(model(*given), *targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tensors = {name: value.detach().clone() for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                tensors[f"optimizer.state.{name}.{key}"] = value.contiguous()
    save_file({name: value.contiguous() for name, value in tensors.items()}, state)
    return losses


def _archive(training: Training, steps: int, state: Path, threads: int) -> list[float]:
    path = state.with_suffix(".aotpack")
    args, targets = next(_batches(training, 1))
    parameters = [parameter for parameter in training.model.parameters() if parameter.requires_grad]
    with _autocast(training):
        program = aot_export(
            training.model,
            args,
            mode="train_step",
            loss=training.loss,
            loss_args=targets,
            optimizer=training.optimizer(parameters),
            training=TrainingOptions(outputs=False),
        )
    build_archive(program, path, options=BuildOptions())
    context = aotpack.load(path, num_threads=threads).context()
    losses = [float(context.entry("train_step")(*a, *t)["loss"]) for a, t in _batches(training, steps)]
    context.save_state(state)
    path.unlink()
    return losses


def run_phase(phase: str, name: str, folder: Path, steps: int, threads: int) -> None:
    torch.set_num_threads(threads)
    training, state = made(name), folder / f"{phase}.safetensors"
    if phase == ARCHIVE:
        losses = _archive(training, steps, state, threads)
    else:
        losses = _eager(training, steps, state, higher=phase == HIGHER, reverse=phase == REVERSED)
    (folder / f"{phase}.json").write_text(json.dumps(losses))


@dataclass(frozen=True)
class Errors:
    """Of a tensor: `error` and `own`, the greatest difference of eager to the archive and to the higher precision, of
    its greatest magnitude; `ratio`, how many times as far from the higher precision as the farther eager the archive
    is, without the elements that are the farthest.
    """

    error: float
    own: float
    ratio: float

    @property
    def noise(self) -> bool:
        return self.own > NOISE

    @property
    def wrong(self) -> bool:
        return not self.noise and not (self.error <= TOLERANCE or self.ratio <= BEYOND)


def _tensor_errors(folder: Path) -> dict[str, Errors]:
    """By the names of the archive's state."""
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(safe_open(folder / f"{phase}.safetensors", "pt"))
            for phase in (ARCHIVE, EAGER, HIGHER, REVERSED)
        ]
        names = list(files[0].keys())
        return {name: _errors(*(file.get_tensor(name).double() for file in files)) for name in names}


def _errors(archive: torch.Tensor, eager: torch.Tensor, higher: torch.Tensor, other: torch.Tensor) -> Errors:
    scale = float(eager.abs().max().clamp(min=torch.finfo(torch.float32).tiny))
    far, own = _distance(archive, higher), max(_distance(eager, higher), _distance(other, higher))
    ratio = far / own if own else float("inf") if far else 1.0
    return Errors(float((archive - eager).abs().max()) / scale, float((eager - higher).abs().max()) / scale, ratio)


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The greatest difference of the elements, without the last hundredth."""
    differences = (a - b).abs().flatten()
    return float(differences.kthvalue(max(1, int(PART * differences.numel()))).values)


def compared(name: str, steps: int, threads: int) -> dict[str, Any]:
    """The errors of a model after so many steps."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for phase in (EAGER, REVERSED, HIGHER, ARCHIVE):
            command = [sys.executable, "-m", "tests.conformance.training", "--steps", str(steps)]
            command += ["--threads", str(threads), "--phase", phase, name, text]
            subprocess.run(command, check=True, cwd=ROOT)
        losses = {phase: np.array(json.loads((folder / f"{phase}.json").read_text())) for phase in (EAGER, ARCHIVE)}
        errors = _tensor_errors(folder)
    moments = {each for each in errors if each.startswith("optimizer.")}
    return {
        "model": name,
        "parameters": _summary([errors[each] for each in errors.keys() - moments]),
        "moments": _summary([errors[each] for each in moments]),
        "loss": float(np.abs(losses[ARCHIVE] - losses[EAGER]).max()),
        "errors": {each: asdict(value) for each, value in errors.items()},
        "wrong": [each for each, value in errors.items() if value.wrong],
    }


def _summary(found: Sequence[Errors]) -> dict[str, float]:
    clear = [each for each in found if not each.noise]
    return {
        "count": len(found),
        "noise": len(found) - len(clear),
        "within": sum(each.error <= TOLERANCE for each in clear),
        "within_own": sum(each.own <= TOLERANCE for each in clear),
        "error": max((each.error for each in clear), default=0.0),
        "own": max((each.own for each in clear), default=0.0),
        "ratio": float(np.median([each.ratio for each in clear])) if clear else 1.0,
    }


def _row(record: Mapping[str, Any]) -> str:
    cells = [record["model"]]
    for kind in ("parameters", "moments"):
        each = record[kind]
        cells += [
            f"{each['error']:.1e}, {each['own']:.1e}",
            f"{each['within']}, {each['within_own']} of {each['count'] - each['noise']} ({each['noise']})",
            f"{each['ratio']:.1f}",
        ]
    return "| " + " | ".join([*cells, f"{record['loss']:.1e}", str(len(record["wrong"]))]) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all errors there")
    parser.add_argument("--phase", choices=(EAGER, REVERSED, HIGHER, ARCHIVE), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.phase:
        warnings.simplefilter("ignore")
        run_phase(options.phase, options.models[0], Path(options.models[1]), options.steps, options.threads)
        return 0
    records = []
    kinds = " | ".join(
        f"{kind}: error, eager's own | within 1e-5 (noise) | ratio" for kind in ("parameters", "moments")
    )
    print(f"| model | {kinds} | loss | wrong |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.models:
        records.append(compared(name, options.steps, options.threads))
        print(_row(records[-1]), flush=True)
        for tensor in records[-1]["wrong"]:
            print(f"  {tensor}: {records[-1]['errors'][tensor]}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))
    return 1 if any(record["wrong"] for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
