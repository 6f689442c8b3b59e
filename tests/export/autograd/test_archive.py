"""Archives with a forward and a backward: what they compute, and handles that are rejected."""

from __future__ import annotations

import gc
import json
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import aotpack
from aotpack.archive import Manifest
from aotpack.archive.halves import halves_of
from aotpack.cli.app import app
from aotpack.errors import InputError
from tests.export.autograd.conftest import Layer

pytestmark = pytest.mark.torch


def _call(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(batch, 1, 4, 4), torch.randn(batch, 16), torch.tensor(0)


def _expected(model: Layer, call: tuple[Tensor, ...], outputs: dict[str, Any]) -> tuple[dict[str, Any], Tensor]:
    """Eager's outputs with the mask that the archive has drawn, and its input that has a gradient."""
    shift = call[1].clone().requires_grad_()
    return model(call[0], shift, torch.tensor(0), mask=(outputs["dropped"] != 0).float()), shift


def _assert_gradients(model: Layer, shift: Tensor, found: dict[str, Any]) -> None:
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(found["gradients"][name], parameter.grad, rtol=1e-4, atol=1e-4)
    if shift.grad is None:
        assert (found["input_gradients"]["shift"] == 0).all()
    else:
        torch.testing.assert_close(found["input_gradients"]["shift"], shift.grad, rtol=1e-4, atol=1e-4)
    assert found["gradients"]["unused.weight"] is None
    assert not any("frozen" in name or "again" in name for name in found["gradients"])


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_gradients_are_those_of_eager(layer: aotpack.Model, batch: int) -> None:
    context, model, call = layer.context(), Layer(), _call(batch)
    outputs, saved = context.forward(*call)
    expected, shift = _expected(model, call, outputs)
    for name in ("logits", "dropped", "label"):
        torch.testing.assert_close(outputs[name], expected[name].detach(), rtol=1e-4, atol=1e-5)
    assert outputs["size"] == call[2] == batch
    gradients: dict[str, Any] = {name: torch.randn_like(outputs[name]) for name in ("logits", "dropped")}
    torch.autograd.backward([expected[name] for name in gradients], list(gradients.values()))
    absent = {"label": None, "size": None}
    found = context.backward(saved, {**gradients, **absent})
    _assert_gradients(model, shift, found)
    # The running statistics are the context's.
    for name, value in context.state().items():
        torch.testing.assert_close(torch.as_tensor(value.numpy()), model.state_dict()[name], rtol=1e-4, atol=1e-5)
    # Again, with inputs and gradients that are not dense.
    wide_call = (call[0].transpose(2, 3).contiguous().transpose(2, 3), torch.stack([call[1]] * 2, -1)[..., 0], call[2])
    assert not any(value.is_contiguous() for value in wide_call[:2])
    results = []
    for given in (call, wide_call):
        context.seed(1)
        results.append(context.forward(*given)[0]["logits"])
    assert torch.equal(*results)
    wide = {name: torch.stack([value, value], -1)[..., 0] for name, value in gradients.items()}
    assert batch == 1 or not wide["logits"].is_contiguous()
    again = context.backward(saved, {**wide, **absent})
    assert all(torch.equal(a, b) for a, b in zip(_tensors(found), _tensors(again), strict=True))


def _tensors(found: dict[str, Any]) -> list[Tensor]:
    return [value for part in found.values() for value in part.values() if value is not None]


def test_a_gradient_that_is_none_counts_as_zeros(layer: aotpack.Model) -> None:
    context, model, call = layer.context(), Layer(), _call(4)
    outputs, saved = context.forward(*call)
    expected, shift = _expected(model, call, outputs)
    expected["dropped"].sum().backward()
    given = {"logits": None, "dropped": torch.ones(4, 16), "label": None, "size": None}
    _assert_gradients(model, shift, context.backward(saved, given))


def test_several_calls_are_open_at_once(layer: aotpack.Model) -> None:
    """Numpy arrays, micro-batches of different sizes, backwards in the opposite order."""
    context = layer.context()
    calls = [tuple(value.numpy() for value in _call(batch)) for batch in (2, 5, 1)]
    made = [context.forward(*call) for call in calls]
    for call, (outputs, saved) in reversed(list(zip(calls, made, strict=True))):
        model = Layer()
        tensors = tuple(torch.as_tensor(value) for value in call)
        expected, _ = _expected(model, tensors, {"dropped": torch.as_tensor(outputs["dropped"])})
        expected["logits"].sum().backward()
        given = {"logits": np.ones_like(outputs["logits"]), "dropped": None, "label": None, "size": None}
        found = context.backward(saved, given)
        assert isinstance(found["gradients"]["head.bias"], np.ndarray)
        np.testing.assert_allclose(found["gradients"]["head.bias"], model.head.bias.grad, rtol=1e-4, atol=1e-4)


def test_inputs_are_kept_by_reference(layer: aotpack.Model) -> None:
    context = layer.context()
    image, *others = (value.numpy() for value in _call(2))
    alive = weakref.ref(image)
    outputs, saved = context.forward(image, *others)
    kept = {id(value) for value in saved._values or ()}
    assert id(image) in kept
    assert saved.nbytes == sum(getattr(value, "nbytes", 8) for value in saved._values or ())
    del image
    gc.collect()
    assert alive() is not None
    saved.release()
    gc.collect()
    assert alive() is None
    assert saved.is_released and saved.nbytes == 0
    del outputs


def test_inspect_shows_what_is_kept(layer: aotpack.Model, layer_path: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(layer_path)])
    assert result.exit_code == 0, result.output
    assert "kept for backward: " in result.output
    shown = json.loads(CliRunner().invoke(app, ["inspect", str(layer_path), "--json"]).stdout)["kept_for_backward"]
    least, greatest = shown["forward"]["sizes"]
    assert (least["dims"], greatest["dims"]) == ({"batch": 1}, {"batch": 32})
    _, saved = layer.context().forward(*_call(32))
    own = sum(value.nbytes for value in _call(32) if tuple(value.shape) in {(32, 1, 4, 4)})
    assert shown["forward"]["inputs"] == ["image"]
    assert greatest["bytes"] == saved.nbytes - own


def test_entries_that_only_look_like_a_backward_are_none(layer: aotpack.Model) -> None:
    manifest = layer.manifest
    forward, backward = manifest.entries
    assert halves_of(manifest, "forward") is not None
    assert halves_of(manifest, "backward") is None

    def with_backward(**changes: Any) -> Manifest:
        return replace(manifest, entries=(forward, replace(backward, **changes)))

    spec = backward.in_spec
    saved: Any = spec.args[0]
    outputs, inputs = saved.items
    assert halves_of(with_backward(name="backwards"), "forward") is None
    assert halves_of(with_backward(in_spec=replace(spec, names=("kept", "output_gradients"))), "forward") is None
    beyond = replace(saved, items=(outputs, replace(inputs, keys=(9,))))
    turned = replace(saved, items=(replace(outputs, items=outputs.items[::-1]), inputs))
    for wrong in (beyond, turned, inputs):
        assert halves_of(with_backward(in_spec=replace(spec, args=(wrong, spec.args[1]))), "forward") is None


def test_a_plain_call_returns_outputs_only(layer: aotpack.Model) -> None:
    outputs = layer(*_call(2))
    assert list(outputs) == ["logits", "dropped", "label", "size"]


def test_handles_of_others_are_rejected(layer: aotpack.Model, layer_path: Path) -> None:
    context, call = layer.context(), _call(2)
    _, saved = context.forward(*call)
    with pytest.raises(InputError, match="belong to another context"):
        layer.context().backward(saved, None)
    with pytest.raises(InputError, match="belong to another context"):
        aotpack.load(layer_path).context().backward(saved, None)
    with pytest.raises(InputError, match=r"those of the entry 'forward', not of 'backward'"):
        context.entry("backward").backward(saved, None)
    with pytest.raises(InputError, match="saved must be what forward"):
        context.backward([], None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="runs in a context"):
        layer.forward(*call)
    with pytest.raises(InputError, match="has no backward"):
        context.entry("backward").forward(*call)
    # An entry of the context is the context's.
    forward = context.entry("forward")
    given = {"logits": torch.ones(2, 3), "dropped": None, "label": None, "size": None}
    assert forward.backward(saved, given)["gradients"].keys() == context.backward(saved, given)["gradients"].keys()


def test_a_backward_sees_the_parameters_of_its_forward(layer: aotpack.Model) -> None:
    context = layer.context()
    given = {"logits": torch.ones(2, 3), "dropped": None, "label": None, "size": None}
    _, saved = context.forward(*_call(2))
    context.forward(*_call(3))  # writes to running statistics
    context.backward(saved, given)
    context.load_state(context.state())
    with pytest.raises(InputError, match="state of the context was loaded or reset between"):
        context.backward(saved, given)
    _, saved = context.forward(*_call(2))
    context.reset()
    with pytest.raises(InputError, match="loaded or reset"):
        context.backward(saved, given)
    _, saved = context.forward(*_call(2))
    saved.release()
    with pytest.raises(InputError, match="were released"):
        context.backward(saved, given)


def test_gradients_that_do_not_match(layer: aotpack.Model) -> None:
    context = layer.context()
    _, saved = context.forward(*_call(2))
    absent = {"dropped": None, "label": None, "size": None}
    with pytest.raises(InputError, match="output_gradients' must be a dict"):
        context.backward(saved, torch.ones(2, 3))
    with pytest.raises(InputError, match=r"lacks the key 'dropped'"):
        context.backward(saved, {"logits": torch.ones(2, 3)})
    with pytest.raises(InputError, match=r"output_gradients\['label'\].* must be None"):
        context.backward(saved, {"logits": None, "dropped": None, "label": torch.ones(2), "size": None})
    with pytest.raises(InputError, match=r"output_gradients\.logits"):
        context.backward(saved, {"logits": torch.ones(3, 3), **absent})
    context.backward(saved, {"logits": torch.ones(2, 3), **absent})
