"""`python -m tests.conformance.training`: models of full size, trained by archives, against eager.

Each model makes the same steps in eager, in an archive, and in eager with higher precision: float64, or float32 where
the others have autocast. A tensor's error is the greatest difference to eager, of the greatest magnitude in the tensor.
It must be within 1e-5, or not far beyond what rounding makes of eager itself: its difference to the higher precision.
Adam divides by the roots of moments; where these are rounding noise, as of biases without an effect on the loss,
parameters are too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
# How far beyond eager's own rounding the error of a tensor may be.
BEYOND = 4.0
EAGER, HIGHER, ARCHIVE = "eager", "higher", "archive"


def _batches(training: Training, steps: int) -> Iterator[Any]:
    random = torch.Generator().manual_seed(1)
    for _ in range(steps):
        yield training.batch(random)


def _autocast(training: Training, *, wanted: bool = True) -> contextlib.AbstractContextManager[Any]:
    on = training.autocast and wanted
    return torch.autocast("cpu", dtype=torch.bfloat16) if on else contextlib.nullcontext()


def _eager(training: Training, steps: int, state: Path, *, higher: bool) -> list[float]:
    model, losses = training.model, []
    wide = higher and not training.autocast
    if wide:
        model.double()
    optimizer = training.optimizer([parameter for parameter in model.parameters() if parameter.requires_grad])
    for args, targets in _batches(training, steps):
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
        losses = _eager(training, steps, state, higher=phase == HIGHER)
    (folder / f"{phase}.json").write_text(json.dumps(losses))


def _tensor_errors(folder: Path) -> dict[str, tuple[float, float]]:
    """For each tensor of the archive's state its error, and that of eager to the higher precision."""
    with contextlib.ExitStack() as stack:
        files = {
            phase: stack.enter_context(safe_open(folder / f"{phase}.safetensors", "pt"))
            for phase in (EAGER, HIGHER, ARCHIVE)
        }
        errors = {}
        for name in files[ARCHIVE].keys():  # noqa: SIM118
            eager = files[EAGER].get_tensor(name).double()
            scale = float(eager.abs().max())
            others = [files[phase].get_tensor(name).double() for phase in (ARCHIVE, HIGHER)]
            ours, own = (float((other - eager).abs().max()) for other in others)
            errors[name] = (ours / scale, own / scale) if scale else (ours and np.inf, own and np.inf)
        return errors


def compared(name: str, steps: int, threads: int) -> dict[str, Any]:
    """The errors of a model after so many steps."""
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for phase in (EAGER, HIGHER, ARCHIVE):
            command = [sys.executable, "-m", "tests.conformance.training", "--steps", str(steps)]
            command += ["--threads", str(threads), "--phase", phase, name, text]
            subprocess.run(command, check=True, cwd=ROOT)
        losses = {phase: np.array(json.loads((folder / f"{phase}.json").read_text())) for phase in (EAGER, ARCHIVE)}
        errors = _tensor_errors(folder)
    moments = {each for each in errors if each.startswith("optimizer.")}
    return {
        "model": name,
        "parameters": _summary(errors, errors.keys() - moments),
        "moments": _summary(errors, moments),
        "loss": float(np.abs(losses[ARCHIVE] - losses[EAGER]).max()),
        "wrong": {
            each: values for each, values in errors.items() if not values[0] <= max(TOLERANCE, BEYOND * values[1])
        },
        "errors": errors,
    }


def _summary(errors: Mapping[str, tuple[float, float]], names: Iterable[str]) -> dict[str, float]:
    """The greatest error of the tensors that float32 determines to the tolerance, and of all."""
    chosen = [errors[name] for name in names]
    return {
        "count": len(chosen),
        "determined": sum(own <= TOLERANCE for _, own in chosen),
        "error": max((ours for ours, own in chosen if own <= TOLERANCE), default=0.0),
        "greatest": max((ours for ours, _ in chosen), default=0.0),
        "own": max((own for _, own in chosen), default=0.0),
    }


def _row(record: Mapping[str, Any]) -> str:
    cells = [record["model"]]
    for kind in ("parameters", "moments"):
        summary = record[kind]
        cells += [
            f"{summary['error']:.1e} ({summary['determined']} of {summary['count']})",
            f"{summary['greatest']:.1e}",
            f"{summary['own']:.1e}",
        ]
    return "| " + " | ".join([*cells, f"{record['loss']:.1e}", str(len(record["wrong"]))]) + " |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), help=f"of {', '.join(MODELS)}")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes all errors there")
    parser.add_argument("--phase", choices=(EAGER, HIGHER, ARCHIVE), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.phase:
        warnings.simplefilter("ignore")
        run_phase(options.phase, options.models[0], Path(options.models[1]), options.steps, options.threads)
        return 0
    records = []
    kinds = " | ".join(f"{kind}, determined | all | eager's own" for kind in ("parameters", "moments"))
    print(f"| model | {kinds} | loss | wrong |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    for name in options.models:
        records.append(compared(name, options.steps, options.threads))
        print(_row(records[-1]), flush=True)
        for tensor, (ours, own) in records[-1]["wrong"].items():
            print(f"  {tensor}: {ours:.1e}, eager's own {own:.1e}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(records, indent=1))
    return 1 if any(record["wrong"] for record in records) else 0


if __name__ == "__main__":
    sys.exit(main())
