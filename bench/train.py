"""A step of training: archives against eager PyTorch, torch.compile and ONNX Runtime's training API.

python -m bench.train [--models mlp,cnn,…] [--engines eager,compile,aotpack] [--threads 2] [--rounds 8] [--json FILE]
    [--device cuda:0 --target cuda-sm_90] [--archives FOLDER] [--onnxruntime ort/bin/python]

Each engine runs in a process of its own, and the processes make steps in turn, never two at once. `first step` is the
time from the start of a fresh process to its first loss, the median of three, in turn; torch.compile finds its caches
filled, archives are in the page cache, and the system holds enough free memory (bench.process.free_memory). `peak` is
the greatest resident memory of the process, with mapped weights. The optimizer is AdamW: torch's default in eager,
torch's fused one beside torch.compile. The losses of the first steps must agree. `--archives` keeps archives:
FOLDER/MODEL with what `--build MODEL FOLDER/MODEL` writes is not built again. `--onnxruntime` is the interpreter of an
environment with ONNX Runtime's training package (bench/train_onnxruntime.py), which trains the models whose loss is the
cross entropy of their logits.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench import train_onnxruntime
from bench.process import ROOT, environment, free_memory

ENGINES = ("eager", "compile", "aotpack")
ONNXRUNTIME = "onnxruntime"
RATE = 1e-4
# Processes of each engine whose start is measured.
STARTS = 3
# Bytes of memory that are free before each start: more than any engine takes.
NEEDED = 2 << 30
# Steps after which losses are compared.
CHECKED = 5


class Task(NamedTuple):
    """A model in training mode, its arguments, the loss and what that takes beside the outputs."""

    model: Any
    args: tuple[Any, ...]
    loss: Callable[..., Any]
    targets: tuple[Any, ...]


def task(name: str) -> Task:
    """The same in every process."""
    import torch

    torch.manual_seed(0)
    made: Task = MODELS[name]()
    made.model.train()
    for module in made.model.modules():
        if isinstance(module, torch.nn.Dropout):
            # Numbers are drawn in other ways; the losses are to be comparable.
            module.p = 0.0
    return made


def _mlp() -> Task:
    import torch
    from torch import nn

    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU())]
    x, y = torch.randn(32, 1024), torch.randint(10, (32,))
    return Task(nn.Sequential(*layers, nn.Linear(1024, 10)), (x,), nn.functional.cross_entropy, (y,))


def _cnn() -> Task:
    import torch
    from torch import nn

    def block(channels: int, width: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]

    features = [*block(1, 32), *block(32, 64), nn.MaxPool2d(2), *block(64, 64), nn.AdaptiveAvgPool2d(2)]
    model = nn.Sequential(*features, nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))
    return Task(model, (torch.randn(64, 1, 8, 8),), nn.functional.cross_entropy, (torch.randint(10, (64,)),))


def _resnet18() -> Task:
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    sizes: dict[str, Any] = {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"}
    model = ResNetForImageClassification(ResNetConfig(embedding_size=64, num_labels=100, **sizes))
    return Task(model, (torch.randn(8, 3, 64, 64),), _logits_loss, (torch.randint(100, (8,)),))


def _bert() -> Task:
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    # Half as deep as BERT-base.
    model = BertForSequenceClassification(BertConfig(num_hidden_layers=6, attention_probs_dropout_prob=0.0))
    return Task(model, (torch.randint(30000, (4, 64)),), _logits_loss, (torch.randint(2, (4,)),))


def _gpt2() -> Task:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    # Half as deep as GPT-2 small.
    model = GPT2LMHeadModel(GPT2Config(n_layer=6, attn_pdrop=0.0, use_cache=False))
    tokens = torch.randint(50000, (2, 64))
    return Task(model, (tokens,), _next_token_loss, (tokens,))


def _logits_loss(outputs: Any, targets: Any) -> Any:
    import torch

    return torch.nn.functional.cross_entropy(outputs["logits"], targets)


def _next_token_loss(outputs: Any, tokens: Any) -> Any:
    import torch

    logits = outputs["logits"]
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


MODELS: dict[str, Callable[[], Task]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet18": _resnet18,
    "bert": _bert,
    "gpt2": _gpt2,
}


# ---- engines --------------------------------------------------------------------------------------------------------


def _torch_step(name: str, threads: int, device: str, *, compiled: bool) -> Callable[[], float]:
    import torch

    torch.set_num_threads(threads)
    made = task(name)
    made.model.to(device)
    args, targets = ([value.to(device) for value in values] for values in (made.args, made.targets))
    optimizer = torch.optim.AdamW(made.model.parameters(), lr=RATE, fused=compiled)

    def loss_of(*args: Any) -> Any:
        return made.loss(made.model(*args[: len(made.args)]), *args[len(made.args) :])

    function = torch.compile(loss_of) if compiled else loss_of

    def step() -> float:
        optimizer.zero_grad()
        loss = function(*args, *targets)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _archive_step(folder: Path, threads: int, device: str) -> Callable[[], float]:
    import numpy as np

    import aotpack

    model = aotpack.load(folder / "model.aotpack", num_threads=threads, device=device)
    entry = model.context().entry("train_step")
    with np.load(folder / "call.npz") as arrays:
        call = [arrays[key] if device == "cpu" else model.to_device(arrays[key]) for key in arrays]
    return lambda: float(np.asarray(entry(*call)["loss"]) if device == "cpu" else entry(*call)["loss"].numpy())


def build(name: str, folder: Path, target: str) -> None:
    """Writes the archive and the arguments of a step."""
    import numpy as np
    import torch

    from aotpack.export import TrainingOptions, aot_export, build_archive

    made = task(name)
    program = aot_export(
        made.model,
        made.args,
        mode="train_step",
        loss=made.loss,
        loss_args=made.targets,
        optimizer=torch.optim.AdamW(made.model.parameters(), lr=RATE),
        training=TrainingOptions(outputs=False),
    )
    folder.mkdir(parents=True, exist_ok=True)
    build_archive(program, folder / "model.aotpack", targets=[target])
    np.savez(folder / "call.npz", *(value.numpy() for value in (*made.args, *made.targets)))


def _peak() -> float:
    """The greatest resident memory of this process, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1000


def worker(engine: str, name: str, folder: Path, threads: int, device: str, started: int) -> None:
    """Answers each line of standard input, a number of steps, by their seconds and the last loss."""
    if engine == "aotpack":
        step = _archive_step(folder, threads, device)
    elif engine == ONNXRUNTIME:
        step = train_onnxruntime.step(folder / ONNXRUNTIME, threads, RATE)
    else:
        step = _torch_step(name, threads, device, compiled=engine == "compile")
    loss = step()
    first = (time.monotonic_ns() - started) / 1e9
    print(json.dumps({"first": first, "loss": loss}), flush=True)
    for line in sys.stdin:
        seconds = []
        for _ in range(int(line)):
            began = time.perf_counter()
            loss = step()
            seconds.append(time.perf_counter() - began)
        print(json.dumps({"seconds": seconds, "loss": loss, "peak": _peak()}), flush=True)


# ---- measuring ------------------------------------------------------------------------------------------------------


class Setup(NamedTuple):
    """What all models of a run have in common."""

    engines: list[str]
    threads: int
    rounds: int
    device: str
    target: str
    archives: Path | None
    onnxruntime: Path | None


class _Engine:
    def __init__(self, engine: str, name: str, folder: Path, setup: Setup) -> None:
        python = setup.onnxruntime if engine == ONNXRUNTIME else sys.executable
        command = [str(python), "-c", "from bench.train import main; main()"]
        command += ["--threads", str(setup.threads), "--device", setup.device, "--worker"]
        free_memory(NEEDED)
        self.process = subprocess.Popen(
            [*command, engine, name, str(folder), str(time.monotonic_ns())],
            cwd=ROOT,
            env=environment(setup.threads, folder / engine),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.start = self._answer()

    def steps(self, count: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"a process ended with {self.process.wait()}: {self.process.args}")


def measured(name: str, setup: Setup) -> dict[str, dict[str, float]]:
    """For each engine: milliseconds of a step, MB at the peak, seconds to the first step.

    Raises:
        RuntimeError: losses differ.
    """
    with tempfile.TemporaryDirectory() as text, contextlib.ExitStack() as open_processes:
        folder = (setup.archives or Path(text)) / name
        engines = _prepare(name, folder, setup)
        starts: dict[str, list[float]] = {engine: [] for engine in engines}
        for _ in range(STARTS - 1):
            for engine in engines:
                process = _Engine(engine, name, folder, setup)
                process.close()
                starts[engine].append(process.start["first"])
        running = {}
        for engine in engines:
            running[engine] = _Engine(engine, name, folder, setup)
            open_processes.callback(running[engine].close)
            starts[engine].append(running[engine].start["first"])
        return {
            engine: {**steps, "first_s": statistics.median(starts[engine])}
            for engine, steps in _steps(name, running, setup.rounds).items()
        }


def _prepare(name: str, folder: Path, setup: Setup) -> list[str]:
    """Builds what the engines start from, and returns those that train this model."""
    engines = list(setup.engines)
    if "aotpack" in engines and not (folder / "call.npz").exists():
        command = [sys.executable, "-m", "bench.train", "--target", setup.target, "--build", name, str(folder)]
        subprocess.run(command, cwd=ROOT, check=True)
    if "compile" in engines:
        _Engine("compile", name, folder, setup).close()
    if setup.onnxruntime is not None:
        made = task(name)
        if made.loss is not _next_token_loss:
            train_onnxruntime.build(made.model, made.args, made.targets, folder / ONNXRUNTIME, setup.onnxruntime)
            engines.append(ONNXRUNTIME)
    return engines


def _steps(name: str, running: dict[str, _Engine], rounds: int) -> dict[str, dict[str, float]]:
    """For each engine: milliseconds of a step, MB at the peak."""
    # Rounding makes trainings part by and by: torch.compile and eager do too.
    first = {engine: each.start["loss"] for engine, each in running.items()}
    _compare(name, first, 1e-4 * max(first.values()))
    _compare(name, {e: each.steps(CHECKED)["loss"] for e, each in running.items()}, 2e-2 * max(first.values()))
    seconds: dict[str, list[float]] = {engine: [] for engine in running}
    peaks: dict[str, float] = {}
    for _ in range(rounds):
        for engine, each in running.items():
            answer = each.steps(max(2, min(100, int(0.5 / statistics.median(seconds[engine] or [0.1])))))
            seconds[engine] += answer["seconds"]
            peaks[engine] = answer["peak"]
    return {e: {"step_ms": statistics.median(seconds[e]) * 1e3, "peak_mb": peaks[e]} for e in running}


def _compare(name: str, losses: dict[str, float], tolerance: float) -> None:
    if max(losses.values()) - min(losses.values()) > tolerance:
        raise RuntimeError(f"{name}: losses differ: {losses}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--target", default="native")
    parser.add_argument("--archives", type=Path)
    parser.add_argument("--onnxruntime", type=Path, metavar="PYTHON")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--build", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        build(options.build[0], Path(options.build[1]), options.target)
        return
    if options.worker:
        engine, name, folder, started = options.worker
        worker(engine, name, Path(folder), options.threads, options.device, int(started))
        return
    setup = Setup(
        options.engines.split(","),
        options.threads,
        options.rounds,
        options.device,
        options.target,
        options.archives,
        options.onnxruntime,
    )
    results = {}
    print(f"{'model':10} {'engine':11} {'step, ms':>10} {'peak, MB':>10} {'first step, s':>14}")
    for name in options.models.split(","):
        results[name] = measured(name, setup)
        for engine, row in results[name].items():
            print(
                f"{name:10} {engine:11} {row['step_ms']:10.2f} {row['peak_mb']:10.0f} {row['first_s']:14.2f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
