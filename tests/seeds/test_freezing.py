"""Freezing, scenario by scenario: archives whose weights were folded and packed, run without torch, against eager."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from aotpack.archive import ArchiveReader
from aotpack.errors import SourceFreedError
from aotpack.export import BuildOptions, aot_export, build_archive, ops
from aotpack.export.packing import pack_conv as packed_layout
from aotpack.export.passes import select
from aotpack.export.program import Program
from aotpack.export.runner import run_passes
from tests.support.building import assert_close, check, in_double, manifest_of
from tests.support.torchless import RemoteModel

pytestmark = pytest.mark.torch

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


# ---- state ----------------------------------------------------------------------------------------------------------


def test_mutation(build: Build) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = nn.Parameter(torch.zeros(10, 10), requires_grad=False)

        def forward(self) -> Tensor:
            self.total.add_(10)
            return self.total

    model = build(Counter(), ())
    assert [(c.name, c.mutated) for c in manifest_of(model.path).constants] == [("total", True)]
    first, second = model.context(), model.context()
    for step in (10, 20):
        assert torch.equal(first(), torch.full((10, 10), float(step)))
    assert torch.equal(second(), torch.full((10, 10), 10.0)), "contexts share state"


def test_aliased_param_return(built: Callable[..., Path]) -> None:
    class Aliases(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(10, 10))

        def forward(self) -> tuple[Tensor, Tensor, Tensor]:
            return self.weight[1:], self.weight, self.weight

    eager = Aliases().eval()
    path = built(eager, ())
    eager.weight.detach().numpy().tofile(path.with_suffix(".bin"))
    script = """
import sys, aotpack, numpy
model = aotpack.load(sys.argv[1])
weight = numpy.fromfile(sys.argv[2], numpy.float32).reshape(10, 10)
for _ in range(2):
    results = [numpy.asarray(value) for value in model()]
    for value, wanted in zip(results, (weight[1:], weight, weight)):
        assert (value == wanted).all()
    for value in results:
        value[...] = 7  # a result is the caller's to write to
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script, str(path), str(path.with_suffix(".bin"))], check=True)


def test_rng_op(build: Build) -> None:
    model = build(lambda: torch.rand(4, 4) + 1, ())
    context = model.context()
    assert not torch.equal(context(), context())
    seeded = model.context(seed=7)
    results = [seeded(), seeded()]
    seeded.method("seed", 7)
    assert [seeded().tolist(), seeded().tolist()] == [value.tolist() for value in results]
    assert all(bool(((value >= 1) & (value < 2)).all()) for value in results)


# ---- constants ------------------------------------------------------------------------------------------------------


class InnerAutocast(nn.Module):
    """A linear under autocast of its own."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = nn.Linear(10, 10)
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=self.dtype):
            return self.linear(x)


@pytest.mark.parametrize("where", ["around", "inside"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(built: Callable[..., Path], torchless: Any, tmp_path: Path, dtype: torch.dtype, where: str) -> None:
    eager = InnerAutocast(dtype).eval() if where == "inside" else nn.Linear(10, 10).eval()
    x = torch.rand(10, 10).to(dtype)
    if where == "inside":
        path = built(eager, (x,))
    else:
        with torch.autocast("cpu", dtype=dtype):
            path = built(eager, (x,))
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        wanted = eager(x)
    result = torchless.load(path)(x)
    assert result.dtype == dtype
    assert_close(result, wanted.double(), TOLERANCE[dtype])
    with ArchiveReader(path) as reader:
        kernels = [k.name for k in reader.manifest.entries[0].variants[0].modules[0].kernels]
        dtypes = {str(constant.dtype) for constant in reader.manifest.constants}
    assert kernels == ["packed_linear"], "a cast of a weight is left for run time"
    assert dtypes == {str(dtype).removeprefix("torch.")}


def test_symint_not_folded(build: Build) -> None:
    class Sizes(nn.Module):
        def forward(self, a: Tensor) -> tuple[Tensor, Tensor]:
            return a.cos(), torch.zeros(a.shape[0], a.shape[1]) + a.shape[0]

    shapes = {"a": {0: torch.export.Dim("m", min=1, max=8), 1: torch.export.Dim("n", min=1, max=8)}}
    model = build(Sizes(), (torch.randn(2, 4, 6),), dynamic_shapes=shapes)
    check(model, Sizes(), (torch.randn(2, 4, 6),), (torch.randn(3, 5, 6),), (torch.randn(1, 8, 6),))


# ---- batch norms ----------------------------------------------------------------------------------------------------


def test_conv_multiple_uses(build: Build) -> None:
    class Uses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 1, 1)
            self.bn = nn.BatchNorm2d(1)
            nn.init.normal_(self.bn.weight)
            self.bn.running_mean.fill_(0.3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.conv(x) + self.bn(self.conv(y))

    eager, args = Uses().eval(), (torch.rand(64, 1, 32, 32), torch.rand(64, 1, 32, 32))
    assert not calls(frozen(eager, args), *NORMS)
    check(build(eager, args), eager, args)


def test_unfolded_bn(build: Build) -> None:
    class Norm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bn = nn.BatchNorm2d(32, eps=1e-3)
            self.bn.running_mean.uniform_(-1, 1)
            self.bn.running_var.uniform_(0.5, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.bn(x) + 10

    eager, args = Norm().eval(), (torch.rand(3, 32, 15, 15),)
    check(build(eager, args), eager, args, tolerance=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bias", [True, False])
def test_folded_conv_bn(build: Build, bias: bool, dtype: torch.dtype) -> None:
    eager = ConvBn(3, 32, bias=bias, kernel_size=3, stride=2).eval().to(dtype)
    args = (torch.rand(3, 3, 32, 32).to(dtype),)
    program = frozen(eager, args)
    (conv,) = calls(program, ops.packed_conv)
    assert not calls(program, *NORMS)
    assert len(program.graph.find_nodes(op="get_attr")) == 2, "one weight and one bias"
    assert conv.meta["val"].dtype == dtype
    model = build(eager, args)
    assert [str(c.dtype) for c in manifest_of(model.path).constants] == [str(dtype).removeprefix("torch.")] * 2
    check(model, eager, args, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_folded_conv_bn_of_mixed_dtypes(build: Build, dtype: torch.dtype) -> None:
    eager = ConvBn(3, 32, kernel_size=3).eval()
    eager.conv.to(dtype)
    args = (torch.rand(2, 3, 16, 16).to(dtype),)
    assert not calls(frozen(eager, args), *NORMS)
    model = build(eager, args)
    check(model, eager, args, tolerance=TOLERANCE[dtype])


def trained(part: nn.Module, *, inputs: int = 32) -> nn.Module:
    """The module in evaluation mode after its norms have seen ten batches."""
    part.train()
    with torch.no_grad():
        for _ in range(10):
            part(torch.rand(3, inputs, 32, 32))
    return part.eval()


def test_folded_conv_bn_with_module_sharing(build: Build) -> None:
    eager = Twice(trained(ConvBn(32, 32, bias=True, kernel_size=3, stride=2))).eval()
    args = (torch.rand(3, 32, 32, 32),)
    program = frozen(eager, args)
    assert len(calls(program, ops.packed_conv)) == 2
    assert not calls(program, *NORMS)
    model = build(eager, args)
    assert len(manifest_of(model.path).constants) == 2, "folded once for both calls"
    check(model, eager, args)


def test_folded_conv_functional_bn_with_module_sharing(build: Build) -> None:
    eager, args = Twice(ConvFunctionalBn(32, 32, kernel_size=3, stride=2)).eval(), (torch.rand(3, 32, 32, 32),)
    assert not calls(frozen(eager, args), *NORMS)
    reference = copy.deepcopy(eager)
    reference.part.double()
    with torch.no_grad():
        expected = reference(args[0].double())
    model = build(eager, args)
    assert not norm_constants(model)
    assert_close(model(*args), expected, 1e-5)


def test_conv_bn_with_multi_bn_share_conv(build: Build) -> None:
    eager = trained(ConvBn(32, 32, bias=True, norms=2, kernel_size=3, stride=2))
    args = (torch.rand(3, 32, 32, 32),)
    assert not calls(frozen(eager, args), *NORMS)
    model = build(eager, args)
    assert not norm_constants(model)
    check(model, eager, args)


def test_conv_functional_bn_with_multi_bn_share_conv(build: Build) -> None:
    eager, args = ConvFunctionalBn(32, 32, norms=2, kernel_size=3, stride=2).eval(), (torch.rand(3, 32, 32, 32),)
    assert not calls(frozen(eager, args), *NORMS)
    with torch.no_grad():
        expected = copy.deepcopy(eager).double()(args[0].double())
    assert_close(build(eager, args)(*args), expected, 1e-5)


def test_dont_change_dtype_folding(build: Build) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 32, 3, stride=2, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x) * torch.full([1], 2.0)

    eager, args = Scaled().eval().bfloat16(), (torch.rand(3, 3, 32, 32).bfloat16(),)
    with torch.no_grad():
        wanted = eager(*args)
    result = build(eager, args)(*args)
    assert result.dtype == wanted.dtype == torch.float32
    assert_close(result, wanted.double(), 1e-2)


# ---- the source model -----------------------------------------------------------------------------------------------


def test_error_on_eager(build: Build) -> None:
    eager, args = ConvBn(3, 32, kernel_size=3, stride=2).eval(), (torch.rand(3, 3, 32, 32),)
    before = copy.deepcopy(eager)
    model = build(eager, args, free_source=True)
    check(model, before, args)
    with pytest.raises(SourceFreedError, match="freed when its archive was built") as caught:
        eager(*args)
    assert isinstance(caught.value, RuntimeError)
    assert "free_source" in str(caught.value.hint)
    with pytest.raises(SourceFreedError):
        eager.conv(*args)


class Shifted(nn.Module):
    """A parameter that is needed only to make another constant of it."""

    def __init__(self, size: int = 10) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return (self.weight + 10) + x


def test_param_deallocated(tmp_path: Path, cache_dir: Path, torchless: Any) -> None:
    eager = Shifted().eval()
    x = torch.rand(10)
    wanted = eager(x)
    memory = weakref.ref(eager.weight.untyped_storage())
    program = aot_export(eager, (x,))
    path = tmp_path / "shifted.aotpack"
    build_archive(program, path, options=BuildOptions(cache_dir=cache_dir, free_source=True))
    gc.collect()
    assert memory() is None or eager.weight.untyped_storage().nbytes() == 0
    with ArchiveReader(path) as reader:
        assert [(c.role, c.sources) for c in reader.manifest.constants] == [("folded", ("weight",))]
    assert_close(torchless.load(path)(x), wanted.double(), 1e-6)


def test_param_deallocated_bounds_the_memory_of_a_build(tmp_path: Path, cache_dir: Path) -> None:
    """Sixteen layers of 16 MB: freed one after another, or never in memory at all."""
    script = """
import json, sys, torch
from pathlib import Path
from torch import nn
from safetensors.torch import save_model
from aotpack.export import BuildOptions, aot_export, build_archive, without_weights

kind, folder, cache = sys.argv[1:]
WIDTH, LAYERS = 2048, 16

def used(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) * 1024

def make():
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))).eval()

def build(layers, output, **options):
    # What code generation takes in any case is taken before memory is measured.
    return build_archive(layers, output, options=BuildOptions(cache_dir=cache, goldens=False, **options))

x = torch.randn(1, WIDTH)
build(aot_export(nn.Sequential(nn.Linear(64, 64)).eval(), (torch.randn(1, 64),)), f"{folder}/first.aotpack")
if kind == "streamed":
    weights = f"{folder}/weights.safetensors"
    with without_weights():
        program = aot_export(make(), (x,), weights=weights)
    options = {}
else:
    model = make()
    program = aot_export(model, (x,))
    options = {"free_source": True}
before = used("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
build(program, f"{folder}/{kind}.aotpack", **options)
print(json.dumps({"before": before, "peak": used("VmHWM"), "after": used("VmRSS")}))
"""
    from safetensors.torch import save_model

    width, layers = 2048, 16
    total = width * width * 4 * layers
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    save_model(model, str(tmp_path / "weights.safetensors"))
    del model
    figures = {}
    for kind in ("streamed", "freed"):
        command = [sys.executable, "-c", script, kind, str(tmp_path), str(cache_dir)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        figures[kind] = json.loads(result.stdout.splitlines()[-1])
    # Without the weights' own size: what packing them adds. Streamed, a few of them at a time; freed, less and less.
    assert figures["streamed"]["peak"] - figures["streamed"]["before"] < 0.5 * total, figures
    assert figures["freed"]["peak"] - figures["freed"]["before"] < 0.3 * total, figures
    assert figures["freed"]["after"] < figures["freed"]["before"] - 0.7 * total, figures


# ---- layouts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 2])
def test_conv_with_as_strided(build: Build, groups: int) -> None:
    class Strided(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kv = nn.Conv2d(256, 384, 1, bias=False, groups=groups)

        def forward(self, x: Tensor) -> Tensor:
            padded = aten.constant_pad_nd.default(self.kv(x), [2, 2, 2, 2], 0.0)
            windows = aten.as_strided.default(padded, [8, 384, 2, 20, 12], [153600, 400, 160, 1, 20])
            windows = aten.as_strided.default(windows, [8, 384, 2, 2, 12, 12], [153600, 400, 160, 8, 20, 1])
            return aten.clone.default(windows, memory_format=torch.contiguous_format)

    eager, args = Strided().eval(), (torch.randn(8, 256, 16, 16),)
    check(build(eager, args), eager, args)


def test_cpp_wrapper(build: Build) -> None:
    eager, args = ConvBn(3, 32, kernel_size=3, stride=2).eval(), (torch.rand(3, 3, 32, 32),)
    model = build(eager, args)
    for _ in range(5):
        args = (torch.rand(3, 3, 32, 32),)
        check(model, eager, args)


def test_conv_layout_convert_with_view(build: Build) -> None:
    class Flattened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 128, 3, padding=1, bias=False)
            self.bn = nn.BatchNorm2d(3)
            self.bn.running_mean.uniform_(-1, 1)

        def forward(self, x: Tensor) -> Tensor:
            return torch.flatten(self.conv(self.bn(x)), 1)

    eager, args = Flattened().eval(), (torch.rand(2, 3, 5, 5),)
    check(build(eager, args), eager, args)


def test_conv_weight_layout_convert(traced: Trace) -> None:
    eager, args = nn.Conv2d(3, 128, 3, padding=1, bias=False).eval(), (torch.rand(2, 3, 5, 5),)
    wanted = packed_layout(eager.weight.detach(), 1, False)
    program = frozen(eager, args)
    (conv,) = calls(program, ops.packed_conv)
    weight = conv.args[1]
    assert isinstance(weight, torch.fx.Node)
    assert weight.meta["val"].shape == wanted.shape
    assert torch.equal(program.value(str(weight.target)), wanted)
    model, trace = traced(eager, args)
    (constant,) = manifest_of(model.path).constants
    assert (constant.shape, constant.stride) == (tuple(wanted.shape), wanted.stride())
    check(model, eager, args)
    convolutions = [line for line in trace() if line["op"] == "packed_conv"]
    assert convolutions
    assert not any(t["relaid"] for line in convolutions for t in line["tensors"] if t["role"] == "weight")


def test_unequal_bias_horizontal_addmm_fusion(build: Build) -> None:
    class Three(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w1, self.b1 = torch.ones(3, 3), torch.zeros(3)
            self.w2, self.b2 = torch.tensor([[0.0, 0.0, 1.0]] * 3), torch.tensor([[-1.0, -1.0, -1.0]])
            self.w3, self.b3 = torch.eye(3), torch.tensor([1.0, 2.0, 3.0])

        def forward(self, x: Tensor) -> tuple[Tensor, ...]:
            return F.linear(x, self.w1, self.b1), F.linear(x, self.w2, self.b2), F.linear(x, self.w3, self.b3)

    eager, x = Three().eval(), torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    model = build(eager, (x,))
    assert_close(model(x), in_double(eager(x)), 1e-6)
    other = torch.randn(2, 3)
    assert_close(model(other), in_double(eager(other)), 1e-6)


def test_redundant_clone_for_layout_convert(build: Build) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 128, 3, padding=1, bias=False)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = x + 1
            return self.conv(x), y

    eager, args = Both().eval(), (torch.rand(2, 3, 5, 5),)
    program = frozen(eager, args)
    copies = calls(program, ops.to_layout, aten.clone.default, aten.contiguous.default)
    returned: Any = program.graph.output_node().args[0]
    assert returned[1] not in copies, "x + 1 has its layout already"
    assert sum(node in copies for node in returned) <= 1
    model = build(eager, args)
    results = model(*args)
    assert all(value.is_contiguous() for value in results)
    check(model, eager, args)
