"""ONNX Runtime's training API, as a peer of `bench.train`.

Its package replaces the module `onnxruntime`, so it needs an environment of its own:

    python3.11 -m venv ort && ort/bin/pip install onnxruntime-training==1.19.2 onnx==1.16.2 'numpy<2' torch

where `torch` may be any that is installed fast: the training package imports it. The loss is the cross entropy of
logits.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.process import ROOT


def build(model: Any, args: tuple[Any, ...], targets: tuple[Any, ...], folder: Path, python: Path) -> None:
    """Exports a model, which returns logits, and has `python` generate the graphs of training into `folder`.

    Raises:
        RuntimeError: it generates none.
    """
    import numpy as np
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: torch.Tensor) -> Any:
            found = self.model(*given)
            return found if isinstance(found, torch.Tensor) else found["logits"]

    folder.mkdir(parents=True, exist_ok=True)
    names = [f"input{i}" for i in range(len(args))]
    torch.onnx.export(
        Logits().train(),
        args,
        str(folder / "forward.onnx"),
        input_names=names,
        output_names=["logits"],
        opset_version=15,  # without LayerNormalization, whose gradient needs outputs that the exporter leaves out
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        export_params=True,
        dynamo=False,
    )
    trained = [f"model.{each}" for each, parameter in model.named_parameters() if parameter.requires_grad]
    (folder / "trained.txt").write_text("\n".join(trained))
    np.savez(folder / "call.npz", *(value.numpy() for value in (*args, *targets)))
    command = [str(python), "-m", "bench.train_onnxruntime", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"ONNX Runtime generates no training graphs:\n{done.stderr[-3000:]}")


def _generate(folder: Path) -> None:
    import onnx
    from onnxruntime.training import artifacts

    model = onnx.load(folder / "forward.onnx")
    stored = {each.name for each in model.graph.initializer}
    trained = [each for each in (folder / "trained.txt").read_text().splitlines() if each in stored]
    artifacts.generate_artifacts(
        model,
        requires_grad=trained,
        frozen_params=[],
        loss=artifacts.LossType.CrossEntropyLoss,
        optimizer=artifacts.OptimType.AdamW,
        artifact_directory=str(folder),
    )


def step(folder: Path, threads: int, rate: float) -> Callable[[], float]:
    """A call that makes a step and returns its loss."""
    import numpy as np
    import onnxruntime
    from onnxruntime.training import api

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    state = api.CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    model = api.Module(str(folder / "training_model.onnx"), state, session_options=options)
    optimizer = api.Optimizer(str(folder / "optimizer_model.onnx"), model)
    optimizer.set_learning_rate(rate)
    with np.load(folder / "call.npz") as arrays:
        call = [arrays[key] for key in arrays]
    model.train()

    def made() -> float:
        loss = model(*call)
        optimizer.step()
        model.lazy_reset_grad()
        return float(np.asarray(loss).reshape([-1])[0])

    return made


if __name__ == "__main__":
    _generate(Path(sys.argv[1]))
