"""Archives as layers of training scripts."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aotpack
from aotpack.errors import InputError
from aotpack.torch import as_module
from tests.export.autograd.conftest import Layer

pytestmark = pytest.mark.torch
F = nn.functional


class Net(nn.Module):
    """A layer between others."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.before, self.layer, self.after = nn.Linear(4, 4), layer, nn.Linear(3, 2)
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, image: Tensor, shift: Tensor, **mask: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.layer(self.before(image).detach(), shift * 2, self.seen, **mask)
        return self.after(outputs["logits"]), outputs["dropped"]


def _eager_layer(source: nn.Module) -> Layer:
    eager = Layer()
    eager.load_state_dict(source.state_dict(), strict=False)
    return eager


def test_trains_beside_eager(layer: aotpack.Model) -> None:
    """Batch norm, dropout and tied weights in a training script, with gradients accumulated over two batches."""
    archive = Net(as_module(layer, seed=3))
    eager = Net(_eager_layer(archive.layer))
    optimizers = [torch.optim.AdamW(net.parameters(), lr=0.02) for net in (archive, eager)]
    for batch in (4, 1, 32):
        pairs = [(torch.randn(batch, 1, 4, 4), torch.randn(batch, 16)) for _ in range(2)]
        targets = torch.randint(2, (batch,))
        for optimizer in optimizers:
            optimizer.zero_grad()
        for image, shift in pairs:
            logits, dropped = archive(image, shift)
            expected, _ = eager(image, shift, mask=(dropped != 0).float())
            torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
            for value in (logits, expected):
                F.cross_entropy(value, targets).backward()
        for optimizer in optimizers:
            optimizer.step()
    known = archive.state_dict()
    for name, value in eager.state_dict().items():
        if name in known:
            torch.testing.assert_close(known[name], value, rtol=1e-3, atol=1e-3, msg=name)
    assert known["layer.norm.num_batches_tracked"] == 6


def test_names_are_those_of_the_state_dict(layer: aotpack.Model) -> None:
    module = as_module(layer)
    names = {name for name in Layer().state_dict() if not name.startswith(("frozen", "unused"))}
    assert module.state_dict().keys() == names
    assert dict(module.named_parameters()).keys() == {n for n, _ in Layer().named_parameters()} & names
    assert module.get_parameter("again.weight") is module.get_parameter("head.weight")
    saved = {name: value.clone() for name, value in module.state_dict().items()}
    other = as_module(layer)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1)
    assert not torch.equal(module.state_dict()["head.weight"], saved["head.weight"])
    inputs = _inputs()
    module.load_state_dict(saved)
    with torch.no_grad():
        logits = module(*inputs)["dropped"], other(*inputs)["dropped"]
    kept = (logits[0] != 0) & (logits[1] != 0)
    torch.testing.assert_close(logits[0][kept], logits[1][kept])


def _inputs(batch: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(batch, 1, 4, 4), torch.randn(batch, 16), torch.tensor(0)


def test_without_gradients_nothing_is_kept(layer: aotpack.Model) -> None:
    module = as_module(layer).eval()
    with torch.no_grad():
        outputs = module(*_inputs())
    assert outputs["logits"].grad_fn is None and outputs["size"] == 2
    with torch.inference_mode():
        module(*_inputs())
    frozen = as_module(layer, trainable=False)
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not frozen(*_inputs())["logits"].requires_grad
    image, shift, seen = _inputs()
    frozen(image, shift.requires_grad_(), seen)["logits"].sum().backward()
    assert shift.grad is not None


def test_an_input_that_is_written_to(layer: aotpack.Model) -> None:
    """torch learns of the write: what was computed from the input before has no backward any more."""
    module = as_module(layer)
    image, shift, seen = _inputs()
    module(image, shift, seen)
    assert seen == 2
    weight = torch.ones((), requires_grad=True)
    product = weight * seen
    module(image, shift, seen)
    assert seen == 4
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_results_without_gradients(layer: aotpack.Model) -> None:
    outputs = as_module(layer)(*_inputs())
    assert outputs["logits"].requires_grad and outputs["dropped"].requires_grad
    assert not outputs["label"].requires_grad


def test_torch_detects_changes_between_forward_and_backward(layer: aotpack.Model) -> None:
    module = as_module(layer)
    outputs = module(*_inputs())
    with torch.no_grad():
        module.get_parameter("head.weight").mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs["logits"].sum().backward()
    image, *others = _inputs()
    outputs = module(image, *others)
    image.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs["logits"].sum().backward()
    outputs = module(*_inputs())
    outputs["logits"].sum().backward(retain_graph=True)
    outputs["logits"].sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        outputs["logits"].sum().backward()


def test_a_second_derivative_is_rejected(layer: aotpack.Model) -> None:
    module = as_module(layer)
    total = module(*_inputs())["dropped"].pow(2).sum()
    (gradient,) = torch.autograd.grad(total, module.get_parameter("convolution.weight"), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_what_the_archive_cannot_compute_is_rejected(layer: aotpack.Model) -> None:
    module = as_module(layer)
    image, shift, seen = _inputs()
    with pytest.raises(RuntimeError, match="'image' requires grad, but the archive does not compute its gradient"):
        module(image.requires_grad_(), shift, seen)
    with pytest.raises(InputError, match="shift"):
        module(image.detach(), shift[:1], seen)
    with pytest.raises(RuntimeError, match="was replaced by another tensor"):
        module.double()(image.detach(), shift, seen)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(module)
    with pytest.raises(InputError, match="has no backward"):
        as_module(layer, entry="backward")


def test_a_copy_is_independent(layer: aotpack.Model) -> None:
    module = as_module(layer)
    with torch.no_grad():
        module.get_parameter("norm.weight").fill_(3)
    module.get_parameter("norm.bias").requires_grad_(False)
    other, tied = copy.deepcopy([module, module.get_parameter("norm.weight")])
    assert tied is other.get_parameter("norm.weight")
    assert (other.get_parameter("norm.weight") == 3).all()
    assert not other.get_parameter("norm.bias").requires_grad
    assert other.get_parameter("again.weight") is other.get_parameter("head.weight")
    with torch.no_grad():
        other.get_parameter("norm.weight").fill_(4)
    assert (module.get_parameter("norm.weight") == 3).all()
    module(*_inputs())["logits"].sum().backward()
    assert other.get_parameter("norm.weight").grad is None


def test_tensors_outlive_the_module(layer_path: Path) -> None:
    module = as_module(layer_path)
    weight = module.get_parameter("head.weight").detach()
    before = weight.clone()
    del module
    assert torch.equal(weight, before)
    weight.add_(1)


def test_threads_with_modules_of_their_own(layer: aotpack.Model) -> None:
    modules = [as_module(layer, seed=5, num_threads=1) for _ in range(3)]
    inputs = _inputs(8)

    def train(module: nn.Module) -> None:
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            module(*inputs)["logits"].sum().backward()
            optimizer.step()

    threads = [threading.Thread(target=train, args=(module,)) for module in modules]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, *others = (module.state_dict() for module in modules)
    for other in others:
        assert all(torch.equal(first[name], other[name]) for name in first)


def test_the_package_imports_no_torch() -> None:
    code = "import sys, aotpack.torch; assert 'torch' not in sys.modules; aotpack.torch.as_module"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_shared_state_stays_where_it_is(layer: aotpack.Model, tmp_path: Path) -> None:
    """Loading and resetting a state change the tensors that share its memory."""
    context = layer.context()
    shared: Any = {name: torch.from_dlpack(value) for name, value in context._share_state().items()}
    initial = {name: value.clone() for name, value in shared.items()}
    context.save_state(tmp_path / "state.safetensors")
    shared["head.bias"].fill_(7)
    assert (torch.as_tensor(context.state()["head.bias"].numpy()) == 7).all()
    state = context.state()
    for change in (context.reset, lambda: context.load_state(tmp_path / "state.safetensors")):
        shared["head.bias"].fill_(9)
        change()
        assert all(torch.equal(shared[name], initial[name]) for name in initial)
    context.load_state(state)
    assert (shared["head.bias"] == 7).all()
    again = torch.from_dlpack(context._share_state()["head.bias"])
    assert again.data_ptr() == shared["head.bias"].data_ptr()
