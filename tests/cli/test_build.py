"""`aotpack build` end to end, from each form of SOURCE; the archives then run in a process without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_python import warm_python

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]

MODEL = """
import torch

def model():
    print("a model that prints must not spoil the JSON")
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()

def example_inputs():
    return (torch.linspace(-1, 1, 16).reshape(2, 8),)
"""


TRAINING = """
import torch
from torch import nn
from aotpack.export import TrainingOptions

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def example_inputs():
    return (torch.linspace(-1, 1, 16).reshape(2, 8),)

def dynamic_shapes():
    return {"input": {0: "batch"}, "target": {0: "batch"}}

def loss(outputs, target):
    return nn.functional.cross_entropy(outputs, target)

def loss_inputs():
    return (torch.tensor([0, 3]),)

def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

def training():
    return TrainingOptions(hyperparameters=("lr",), accumulate="mean")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("build")
    (path / "net.py").write_text(MODEL)
    return path


def aotpack(folder: Path, *args: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if args[0] == "build":
        return warm_python().run("-m", "aotpack.cli.app", *args, cwd=folder, env=environment)
    command = [sys.executable, "-m", "aotpack.cli.app", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


def build(folder: Path, source: str, *args: object) -> dict[str, Any]:
    result = aotpack(folder, "build", source, "-o", "out.aotpack", "--json", *args)
    assert result.returncode == 0, result.stderr
    for phase in ("capture", "passes", "lower", "compile", "pack", "check"):
        assert phase in result.stderr
    value = json.loads(result.stdout)
    assert isinstance(value, dict)
    assert list(value["seconds"]) == ["capture", "passes", "lower", "compile", "pack", "check"]
    assert value["size"] == (folder / "out.aotpack").stat().st_size
    verified = aotpack(folder, "verify", "out.aotpack", "--json")
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["outputs"][0]["error"] < 1e-5
    return value


def signature(folder: Path) -> str:
    value = json.loads(aotpack(folder, "inspect", "out.aotpack", "--json").stdout)
    return str(value["signatures"]["forward"])


def test_file_with_dims(folder: Path) -> None:
    build(folder, "net.py", "--dim", "input.0=batch:1..64", "--name", "mlp")
    assert signature(folder) == "forward(input: float32[batch, 8]) -> float32[batch, 4] where batch in [1, 64]"
    result = aotpack(folder, "run", "out.aotpack", "--random", "--dim", "batch=65")
    assert result.returncode == 1
    assert "batch" in result.stderr


SIZES = """
import torch

def model():
    def function(x, mask, batch, n, f):
        return x[:n] * f + torch.ones(4) * mask.sum(), batch["ids"] * 2, x.shape[0]
    return function

def example_inputs():
    return (torch.ones(6, 4), torch.ones(6), {"ids": torch.arange(12)}, 3, 0.5)
"""


def test_dims_of_all_kinds(folder: Path) -> None:
    (folder / "sizes.py").write_text(SIZES)
    options = ["x.0=rows:2..64%2", "mask.0=rows", "batch.ids.0=2*rows", "n=n:0..2", "f=dynamic"]
    arguments = [part for option in options for part in ("--dim", option)]
    wrong = aotpack(folder, "build", "sizes.py", "-o", "out.aotpack", *arguments)
    assert wrong.returncode == 1
    assert "the dim 'n' is 3 in the example call" in wrong.stderr
    arguments[7] = "n=n:0..50"
    build(folder, "sizes.py", *arguments)
    assert signature(folder) == (
        "forward(x: float32[rows, 4], mask: float32[rows], batch: {'ids': int64[2*rows]}, n: int[n], f: float) -> "
        "(float32[min(n, rows), 4], int64[2*rows], int) where rows in [2, 64] by 2, n in [0, 50]"
    )


def test_auto_says_what_became_a_constant(folder: Path) -> None:
    (folder / "sizes.py").write_text(SIZES)
    made = build(folder, "sizes.py", "--dim", "auto")
    (note,) = [note for note in made["notes"]["forward"] if note["subject"] == "input 'x', axis 1"]
    assert note["text"].startswith("is always 4")
    assert "sizes.py:6" in note["text"]
    result = aotpack(folder, "build", "sizes.py", "-o", "out.aotpack", "--dim", "auto")
    assert result.returncode == 0, result.stderr
    assert "note: input 'x', axis 1: is always 4" in result.stderr
    assert "note:" not in result.stdout


def test_passes_are_explained_and_left_out(folder: Path) -> None:
    result = aotpack(folder, "build", "net.py", "-o", "out.aotpack", "--explain")
    assert result.returncode == 0, result.stderr
    assert "pack-linear" in result.stdout
    assert "packed the weight [16, 8]" in result.stdout
    shown = aotpack(folder, "inspect", "out.aotpack", "--passes").stdout
    assert "packed the weight [16, 8]" in shown
    value = json.loads(aotpack(folder, "inspect", "out.aotpack", "--json").stdout)
    changes = {report["name"]: report["changes"] for report in value["passes"]["forward"]["default"]}
    assert {"layer": "0", "note": "packed the weight [16, 8]"} in changes["pack-linear"]
    made = build(folder, "net.py", "--without", "pack-linear")
    assert "pack-linear" not in [report["name"] for report in made["passes"]["forward"]["default"]]
    build(folder, "net.py", "--without", "all")
    wrong = aotpack(folder, "build", "net.py", "-o", "out.aotpack", "--without", "pack-linaer")
    assert wrong.returncode == 1
    assert "did you mean pack-linear?" in wrong.stderr


def test_weights_from_a_file(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    state = {"0.weight": torch.ones(16, 8), "0.bias": torch.zeros(16), "2.weight": torch.ones(4, 16)}
    save_file(state | {"2.bias": torch.arange(4.0)}, folder / "net.safetensors")
    result = aotpack(
        folder, "build", "net.py", "-o", "ones.aotpack", "--weights", "net.safetensors", "--updatable", "--json"
    )
    assert result.returncode == 0, result.stderr
    script = (
        "import aotpack, numpy; model = aotpack.load('ones.aotpack'); "
        "assert model(numpy.ones((2, 8), numpy.float32)).tolist() == [[128, 129, 130, 131]] * 2; "
        "assert list(model.weights) == ['0.weight', '0.bias', '2.weight', '2.bias']"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=folder)
    assert "updatable" in aotpack(folder, "inspect", "ones.aotpack").stdout
    save_file(state, folder / "less.safetensors")
    wrong = aotpack(folder, "build", "net.py", "-o", "ones.aotpack", "--weights", "less.safetensors")
    assert wrong.returncode == 1
    assert "no tensor '2.bias'" in wrong.stderr


def test_code_only(folder: Path) -> None:
    result = aotpack(folder, "build", "net.py", "-o", "code.aotpack", "--code-only")
    assert result.returncode == 0, result.stderr
    assert "note: the example call was not checked: the archive has no weights" in result.stderr
    assert "note: to add the weights: aotpack pack code.aotpack --weights FILE -o OUTPUT" in result.stderr
    result = aotpack(folder, "run", "code.aotpack", "--random")
    assert result.returncode == 1
    assert "`aotpack pack code.aotpack --weights FILE -o OUTPUT`" in result.stderr
    result = aotpack(folder, "build", "net.py", "-o", "code.aotpack", "--code-only", "--weights", "net.safetensors")
    assert result.returncode == 2
    assert "a code-only archive contains no weights" in result.stderr


def test_module_for_a_target(folder: Path) -> None:
    value = build(folder, "net:model", "-t", "x86-64-v3")
    assert list(value["targets"]) == ["x86-64-v3"]
    assert signature(folder) == "forward(input: float32[2, 8]) -> float32[2, 4]"


def test_exported_program(folder: Path) -> None:
    code = (
        "import torch, net; m = net.model(); torch.export.save(torch.export.export(m, net.example_inputs()), 'net.pt2')"
    )
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True, capture_output=True)
    build(folder, "net.pt2")
    assert aotpack(folder, "build", "net.pt2", "-o", "x.aotpack", "--dim", "x.0=n").returncode == 2


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (["net.py", "--dim", "x.0=batch"], 2, "no input 'x'; it has input"),
        (["net.py", "--dim", "input.2=batch"], 2, "no axis 2"),
        (["net.py", "--target", "vax"], 1, "unknown target 'vax'"),
        (["missing.py"], 1, "no such file: missing.py"),
        (["net"], 2, "is invalid"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, args: list[str], code: int, message: str) -> None:
    result = aotpack(folder, "build", *args, "-o", "wrong.aotpack")
    assert result.returncode == code
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""
    assert not (folder / "wrong.aotpack").exists()


def test_an_old_archive_survives_a_failure(folder: Path) -> None:
    (folder / "bad.py").write_text(MODEL.replace("2, 8),)", "4, 4),)"))
    (folder / "kept.aotpack").write_bytes(b"old")
    result = aotpack(folder, "build", "bad.py", "-o", "kept.aotpack")
    assert result.returncode == 1
    assert "error:" in result.stderr
    assert "Traceback" not in result.stderr
    assert (folder / "kept.aotpack").read_bytes() == b"old"


ENTRIES = """
import torch
from aotpack import Dim

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(8, 16)
        self.second = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.second(self.embed(x))

    def embed(self, x):
        return torch.relu(self.first(x))

def model():
    return Net().eval()

def entries():
    batch = Dim("batch", 1, 64)
    return {
        "forward": {"args": (torch.ones(2, 8),), "dynamic_shapes": {"x": {0: batch}}, "variants": [{"batch": 1}, {}]},
        "embed": {"kwargs": {"x": torch.ones(3, 8)}, "method": "embed"},
    }
"""


def test_entries_and_variants(folder: Path) -> None:
    (folder / "many.py").write_text(ENTRIES)
    value = build(folder, "many.py")
    assert {entry: list(variants) for entry, variants in value["passes"].items()} == {
        "forward": ["batch=1", "general"],
        "embed": ["default"],
    }
    shown = json.loads(aotpack(folder, "inspect", "out.aotpack", "--json").stdout)
    assert {entry["name"]: [v["name"] for v in entry["variants"]] for entry in shown["entries"]} == {
        "forward": ["batch=1", "general"],
        "embed": ["default"],
    }
    assert len(shown["constants"]) == 4
    assert "passes over forward, batch=1" in aotpack(folder, "inspect", "out.aotpack", "--passes").stdout
    wrong = aotpack(folder, "build", "many.py", "-o", "out.aotpack", "--variant", "batch=1")
    assert wrong.returncode == 2
    assert "entries()" in wrong.stderr


def test_an_entry_with_its_backward(folder: Path) -> None:
    source = (folder / "net.py").read_text()
    call = '{"args": (torch.ones(2, 8),), "mode": "forward_backward", "memory_budget": 0.0}'
    (folder / "layer.py").write_text(f"{source}\ndef entries():\n    return {{'layer': {call}}}\n")
    assert list(build(folder, "layer.py")["passes"]) == ["layer", "layer_backward"]


def test_variants_at_the_command_line(folder: Path) -> None:
    options = ["--dim", "input.0=batch:1..64", "--variant", "general", "--variant", "batch=1"]
    value = build(folder, "net.py", *options, "--select", "tightest")
    assert list(value["passes"]["forward"]) == ["batch=1", "general"]
    assert json.loads(aotpack(folder, "inspect", "out.aotpack", "--json").stdout)["name"] == "net"
    wrong = aotpack(folder, "build", "net.py", "-o", "out.aotpack", *options, "--variant", "batch=65")
    assert wrong.returncode == 1
    assert "batch in [1, 64]" in wrong.stderr
    for option, said in {"--variant": "use DIM=SIZE", "--select": "use declared or tightest"}.items():
        wrong = aotpack(folder, "build", "net.py", "-o", "out.aotpack", option, "best")
        assert wrong.returncode == 2
        assert said in wrong.stderr


REPEATED = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())

def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(Block(), Block(), Block()).eval()

def example_inputs():
    return (torch.linspace(-1, 1, 16).reshape(2, 8),)
"""


def test_regions(folder: Path) -> None:
    (folder / "repeated.py").write_text(REPEATED)
    report = build(folder, "repeated.py", "--regions", "auto")
    regions = report["passes"]["forward"]["default"][0]
    assert (regions["name"], regions["summary"]) == ("regions", "compiled 1 block for 3 calls")
    wrong = aotpack(folder, "build", "repeated.py", "-o", "x.aotpack", "--regions", "all")
    assert wrong.returncode == 2
    assert "--regions" in wrong.stderr


def test_a_step_of_training(folder: Path) -> None:
    (folder / "training.py").write_text(TRAINING)
    made = build(folder, "training.py")
    assert list(made["notes"]) == ["train_step", "accumulate", "apply", "forward"]
    refused = aotpack(folder, "build", "training.py", "-o", "other.aotpack", "--dim", "target.0=batch")
    assert refused.returncode == 2
    assert "dynamic_shapes()" in refused.stderr
    (folder / "lossless.py").write_text(TRAINING.replace("def loss(", "def other("))
    refused = aotpack(folder, "build", "lossless.py", "-o", "other.aotpack")
    assert refused.returncode == 1
    assert "no function loss()" in refused.stderr
