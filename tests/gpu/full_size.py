"""Models of real sizes whose code is built without a GPU, and compared with eager in double precision on one.

    python -m tests.gpu.full_size build FOLDER [NAME ...]    anywhere: the code, without weights
    python -m tests.gpu.full_size check FOLDER [NAME ...]    on a GPU: packs random weights, calls, compares

A process without torch runs the archives. An error is the norm of a result's difference over the norm of the result.
Beside it stands eager's own, on the GPU in the model's precision without TF32: where a number is near 0, `relu` may go
either way, and its gradients with it. Training with dropout is compared where an element was kept.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import aotpack
from aotpack.export import BuildOptions, aot_export, build_archive
from bench.codes import pack_code
from bench.models import Vision
from tests.gpu.architectures import _FirstResult
from tests.support.torchless import Torchless

Args = tuple[Any, ...]
_BOUNDS = {torch.float32: 2e-5, torch.float16: 1e-2, torch.bfloat16: 4e-2}


class FullSize(NamedTuple):
    """`calls` are those that are compared, the first one is the example."""

    module: nn.Module
    calls: list[Args]
    shapes: Any
    mode: str = "forward"


class _Loss(nn.Module):
    """Cross entropy of what a model returns, with labels as the last argument."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x).float().flatten(0, -2), labels.flatten())


def _ids(*sizes: int) -> Tensor:
    return torch.randint(0, 30000, sizes)


def _resnet18() -> FullSize:
    sizes = {"embedding_size": 64, "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}
    config = transformers.ResNetConfig(layer_type="basic", num_labels=1000, **sizes)
    model = _Loss(Vision(transformers.ResNetForImageClassification(config))).train()
    calls: list[Args] = [(torch.randn(n, 3, 224, 224), torch.randint(0, 1000, (n,))) for n in (8, 2, 32)]
    batch = aotpack.Dim("batch", 2, 64)
    return FullSize(model, calls, {"x": {0: batch}, "labels": {0: batch}}, "joint")


def _gpt2_block(dtype: torch.dtype) -> FullSize:
    config = transformers.GPT2Config(n_layer=1, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    model = _Loss(_FirstResult(transformers.GPT2LMHeadModel(config), "input_ids")).to(dtype)
    calls: list[Args] = [(_ids(b, n), _ids(b, n)) for b, n in ((4, 256), (1, 2), (3, 77), (2, 1024))]
    batch, length = aotpack.Dim("batch", 1, 64), aotpack.Dim("length", 2, 1024)
    sizes = {0: batch, 1: length}
    return FullSize(model, calls, {"x": sizes, "labels": sizes}, "joint")


def _bert() -> FullSize:
    model = _FirstResult(transformers.BertModel(transformers.BertConfig()), "input_ids", "attention_mask")
    batch, length = aotpack.Dim("batch", 1, 64), aotpack.Dim("length", 2, 512)
    calls: list[Args] = []
    for b, n in ((8, 128), (1, 2), (1, 128), (3, 77), (16, 512)):
        mask = torch.ones(b, n, dtype=torch.long)
        mask[-1, 1 + n // 2 :] = 0
        calls.append((_ids(b, n), mask))
    return FullSize(model.eval().half(), calls, [{0: batch, 1: length}] * 2)


class _Dropout(nn.Module):
    """The residual part of a transformer's layer in training, before the residual is added."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow, self.dropout = nn.Linear(768, 3072), nn.Linear(3072, 768), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.dropout(self.narrow(F.gelu(self.wide(x))))
        return y


def _dropout() -> FullSize:
    batch = aotpack.Dim("batch", 1, 1024)
    return FullSize(_Dropout().train().half(), [(torch.randn(n, 768).half(),) for n in (64, 1, 1000)], [{0: batch}])


MODELS: dict[str, Callable[[], FullSize]] = {
    "joint-resnet18": _resnet18,
    "joint-gpt2-block-fp32": lambda: _gpt2_block(torch.float32),
    "joint-gpt2-block-bf16": lambda: _gpt2_block(torch.bfloat16),
    "bert-fp16-dynamic": _bert,
    "dropout-fp16": _dropout,
}


def _made(name: str) -> FullSize:
    torch.manual_seed(0)
    return MODELS[name]()


def build(folder: Path, names: Iterable[str]) -> int:
    """Writes the code of each model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        made, began = _made(name), time.perf_counter()
        program = aot_export(made.module, made.calls[0], dynamic_shapes=made.shapes, mode=made.mode)
        path = folder / f"{name}.aotpack"
        path.unlink(missing_ok=True)
        report = build_archive(program, path, targets=["cuda-sm_90"], options=BuildOptions(code_only=True))
        steps = sum(len(steps) for variants in report.host_steps.values() for steps in variants.values())
        print(f"{name}: {report.size} bytes in {time.perf_counter() - began:.0f} s, {steps} host steps", flush=True)
    return 0


def _eager(made: FullSize, args: Args, dtype: torch.dtype) -> list[Tensor]:
    """Eager's answer in a precision: results, then the gradients of parameters where there is a loss."""
    module = copy.deepcopy(made.module).cuda().to(dtype)
    args = tuple(a.cuda().to(dtype) if a.is_floating_point() else a.cuda() for a in args)
    if made.mode == "joint":
        loss = module(*args)
        found = [loss, *torch.autograd.grad(loss, list(module.parameters()))]
    else:
        with torch.no_grad():
            found = pytree.tree_leaves(module.eval()(*args))
    return [tensor.detach().cpu() for tensor in found]


def _error(found: Tensor, expected: Tensor, random: bool = False) -> float:
    found = found.double()
    if random:
        kept = found != 0
        share = float(kept.double().mean())
        # Six standard deviations of the share.
        if abs(share - 0.9) > 6 * (0.09 / found.numel()) ** 0.5:
            return float("inf")
        expected, found = expected[kept] / 0.9, found[kept]
    if found.shape != expected.shape or not found.isfinite().all():
        return float("inf")
    return float((found - expected).norm() / expected.norm())


def check(folder: Path, names: Iterable[str]) -> int:
    """Compares; 1 where an error exceeds the bound of a dtype and three times eager's."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    process, failed = Torchless(), 0
    for name in names:
        made = _made(name)
        dtype = next(made.module.parameters()).dtype
        path = folder / f"{name}-packed.aotpack"
        path.unlink(missing_ok=True)
        pack_code(folder / f"{name}.aotpack", made.module.state_dict(), path)
        context = process.load(path, device="cuda:0").context(seed=0)
        answers = [pytree.tree_leaves(context(*args)) for args in made.calls]
        random = name.startswith("dropout")
        if random:
            again = process.load(path, device="cuda:0").context(seed=0)
            same = all(torch.equal(again(*args), answer[0]) for args, answer in zip(made.calls, answers, strict=True))
            if not same or torch.equal(context(*made.calls[0]), answers[0][0]):
                failed = 1
                print(f"{name}: the seed does not decide the numbers")
        for args, answer in zip(made.calls, answers, strict=True):
            expected = _eager(made, args, torch.float64)
            if len(answer) != len(expected):
                failed = 1
                print(f"{name}: {len(answer)} results, eager has {len(expected)}")
                continue
            error = max(_error(a, b, random) for a, b in zip(answer, expected, strict=True))
            eagers = max(_error(a, b) for a, b in zip(_eager(made, args, dtype), expected, strict=True))
            failed |= error > max(_BOUNDS[dtype], 3 * eagers)
            sizes = [tuple(a.shape) for a in args]
            print(f"{name} {sizes}: {len(answer)} results, error {error:.1e}, eager's {eagers:.1e}", flush=True)
        path.unlink()
    process.close()
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.full_size", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("what", choices=("build", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help=f"default: all ({', '.join(MODELS)})")
    options = parser.parse_args()
    return {"build": build, "check": check}[options.what](options.folder, options.names or list(MODELS))


if __name__ == "__main__":
    sys.exit(main())
