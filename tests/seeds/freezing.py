"""What the scenarios of freezing share: models with batch norms, and what became of their programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from aotpack.export import aot_export
from aotpack.export.driver.pipeline import select
from aotpack.export.ir.program import Program
from aotpack.export.passes.runner import run_passes
from tests.support.building import manifest_of
from tests.support.torchless import RemoteModel

aten = torch.ops.aten
Build = Callable[..., RemoteModel]
Trace = Callable[..., tuple[RemoteModel, Callable[[], list[dict[str, Any]]]]]

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}
NORMS = (aten.batch_norm.default, aten._native_batch_norm_legit_no_training.default)


class ConvBn(nn.Module):
    """A convolution and a batch norm that has seen data."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False, norms: int = 1, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, bias=bias, **options)
        self.norms = nn.ModuleList(nn.BatchNorm2d(outputs, eps=10.0 ** -(3 - i)) for i in range(norms))
        for norm in self.norms:
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.uniform_(norm.bias, -1, 1)
            norm.running_mean.uniform_(-1, 1)
            norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        results = [norm(self.conv(x)) for norm in self.norms]
        return sum(results[1:], results[0])


class ConvFunctionalBn(nn.Module):
    """The same by F.batch_norm, over statistics that are plain tensors."""

    def __init__(self, inputs: int, outputs: int, *, norms: int = 1, **options: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, **options)
        self.means = [torch.rand(outputs) for _ in range(norms)]
        self.var = torch.rand(outputs) + 0.5
        self.scale, self.shift = torch.rand(outputs) + 0.5, torch.rand(outputs)

    def forward(self, x: Tensor) -> Tensor:
        results = [
            F.batch_norm(self.conv(x), mean, self.var, self.scale, self.shift, False, 0.1, 1e-5) for mean in self.means
        ]
        return sum(results[1:], results[0])

    def double(self) -> ConvFunctionalBn:
        super().double()
        self.means = [mean.double() for mean in self.means]
        self.var, self.scale, self.shift = self.var.double(), self.scale.double(), self.shift.double()
        return self


class Twice(nn.Module):
    """Calls a module twice, on its input and on what that gives or on the input again."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x) + 2 * self.part(x + 1)


def frozen(model: Any, args: tuple[Any, ...], **options: Any) -> Program:
    """The program after all passes."""
    return run_passes(aot_export(model, args, **options), select())


def calls(program: Program, *targets: Any) -> list[torch.fx.Node]:
    return [node for node in program.graph.nodes if node.op == "call_function" and node.target in targets]


def norm_constants(model: RemoteModel) -> list[str]:
    """Constants of an archive that are statistics of a norm as they were."""
    return [
        c.name
        for c in manifest_of(model.path).constants
        if any(part in c.name for part in ("running_", "means", "var"))
    ]


def trained(part: nn.Module, *, inputs: int = 32) -> nn.Module:
    """The module in evaluation mode after its norms have seen ten batches."""
    part.train()
    with torch.no_grad():
        for _ in range(10):
            part(torch.rand(3, inputs, 32, 32))
    return part.eval()
