"""Joint programs: a loss and its gradients, captured, built, and compared with eager's backward in double."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

import aotpack
from aotpack.errors import CaptureError, UnsupportedOperatorError
from aotpack.export import aot_export, build_archive
from aotpack.export.backends.cpu import lower
from aotpack.export.ir.program import Program
from aotpack.export.ir.rewriter import layer_of
from aotpack.export.passes.common.convolution_backward import lower_convolution_backward
from aotpack.export.passes.common.convolution_weight_gradient import lower_convolution_weight_gradient
from aotpack.export.passes.runner import run_passes
from aotpack.spec import DictSpec, DimRef, ValueLeaf
from tests.support.building import Build, check_joint, joint_reference


class Classifier(nn.Module):
    """Convolutions of all kinds, a norm with running statistics, tied weights, and a layer that the loss ignores."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8)
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, groups=2, bias=False)
        self.inner = nn.Linear(6, 6, bias=False)
        self.head = nn.Linear(6, 6)
        self.head.weight = self.inner.weight
        self.ignored = nn.Linear(2, 2)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Any]:
        y = F.relu(self.norm(self.stem(x)))
        y = self.up(F.gelu(self.depthwise(y)))
        logits = self.head(torch.tanh(self.inner(y.mean((2, 3)))))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits, "kind": "train"}


def images(count: int, *, grad: bool = True) -> tuple[Tensor, Tensor]:
    return torch.randn(count, 3, 21, 17, requires_grad=grad), torch.randint(0, 6, (count,))


def answers(program: Program, *inputs: Tensor) -> list[Tensor]:
    """What the graph computes by torch's operators."""
    results: list[Tensor] = list(program.runnable()(*(value.detach().clone() for value in inputs)))
    return results


class TestInterface:
    def test_outputs_and_gradients_are_described(self) -> None:
        batch = Dim("batch", min=1, max=64)
        program = aot_export(
            Classifier(), images(4), mode="joint", dynamic_shapes={"x": {0: batch}, "labels": {0: batch}}
        )
        signature = program.signature
        assert signature.name == "joint"
        assert isinstance(signature.out_spec, DictSpec)
        assert signature.out_spec.keys == ("outputs", "gradients", "input_gradients")
        outputs, gradients, inputs = signature.out_spec.items
        assert isinstance(outputs, DictSpec) and outputs.keys == ("loss", "logits", "kind")
        assert outputs.items[2] == ValueLeaf("train")
        assert isinstance(gradients, DictSpec) and isinstance(inputs, DictSpec)
        assert gradients.keys == tuple(name for name, _ in Classifier().named_parameters())
        named = dict(zip(gradients.keys, gradients.items, strict=True))
        assert named["ignored.weight"] == ValueLeaf(None) and named["ignored.bias"] == ValueLeaf(None)
        assert inputs.keys == ("x",)
        by_name = {spec.name: spec for spec in signature.outputs}
        assert by_name["output.gradients.stem.weight"].shape == (8, 3, 3, 3)
        assert by_name["output.input_gradients.x"].shape == (DimRef("batch"), 3, 21, 17)

    def test_gradients_are_those_of_parameters_that_require_them(self) -> None:
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1), nn.Flatten(0))
        model[0].requires_grad_(False)
        program = aot_export(model, (torch.randn(1, 3),), mode="joint")
        assert isinstance(program.signature.out_spec, DictSpec)
        assert program.signature.out_spec.keys == ("outputs", "gradients")
        assert [spec.name for spec in program.signature.outputs] == [
            "output.outputs",
            "output.gradients.1.weight",
            "output.gradients.1.bias",
        ]

    def test_gradients_have_the_layout_of_parameters(self) -> None:
        model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        loss = Squared(model)
        program = aot_export(loss, (torch.randn(2, 3, 6, 6),), mode="joint")
        by_name = {spec.name: spec for spec in program.signature.outputs}
        assert by_name["output.gradients.model.weight"].order == (0, 2, 3, 1)

    def test_the_model_stays_as_it_was(self) -> None:
        model = Classifier()
        state = {key: value.clone() for key, value in model.state_dict().items()}
        x, labels = images(4)
        program = aot_export(model, (x, labels), mode="joint")
        assert all(parameter.grad is None for parameter in model.parameters()) and x.grad is None
        assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
        assert program.constants["norm.running_mean"].mutated

    def test_the_reference_is_eagers_answer(self) -> None:
        model, x = Squared(nn.Linear(3, 2)), torch.randn(4, 3, requires_grad=True)
        program = aot_export(model, (x,), mode="joint")
        assert program.reference is not None
        loss = model(x)
        expected = [loss, *torch.autograd.grad(loss, [*model.parameters(), x])]
        for value, wanted in zip(program.reference.outputs, expected, strict=True):
            assert torch.equal(value, wanted)

    def test_keyword_arguments_and_dataclasses(self, build: Build) -> None:
        model = Structured()
        call = Pair(torch.randn(3, 4, requires_grad=True), torch.randn(3, 2))
        archive = build(model, (call,), {"scale": torch.tensor(2.0, requires_grad=True)}, mode="joint")
        fresh = Pair(torch.randn(3, 4), torch.randn(3, 2))
        result = archive(fresh, scale=torch.tensor(0.5))
        double = Structured()
        double.load_state_dict(model.state_dict())
        x, scale = fresh.x.double().requires_grad_(), torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        loss = double.double()(Pair(x, fresh.y.double()), scale=scale)["loss"]
        loss.backward()
        assert list(result["input_gradients"]) == ["call.x", "scale"]
        torch.testing.assert_close(result["input_gradients"]["call.x"].double(), x.grad, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(result["input_gradients"]["scale"].double(), scale.grad, rtol=1e-4, atol=1e-6)


@dataclasses.dataclass
class Pair:
    x: Tensor
    y: Tensor


class Structured(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, call: Pair, *, scale: Tensor) -> dict[str, Any]:
        return {"nothing": None, "loss": F.mse_loss(self.linear(call.x) * scale, call.y)}


class Squared(nn.Module):
    """The mean square of what a model returns: a loss for tests of one layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        y = self.model(x)
        return (y * (y + 0.3)).mean()


class TestGraph:
    def test_operators_of_the_backward_are_left_whole(self) -> None:
        program = aot_export(Classifier(), images(2), mode="joint")
        names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
        assert {"aten.convolution_backward.default", "aten.native_batch_norm_backward.default"} <= names

    def test_nodes_of_the_backward_know_their_layer(self) -> None:
        program = aot_export(Classifier(), images(2), mode="joint")
        for operator, layers in (
            (torch.ops.aten.convolution.default, ["stem", "depthwise", "up"]),
            (torch.ops.aten.convolution_backward.default, ["up", "depthwise", "stem"]),
            (torch.ops.aten.native_batch_norm_backward.default, ["norm"]),
        ):
            nodes = program.graph.find_nodes(op="call_function", target=operator)
            assert [layer_of(node) for node in nodes] == layers
            for node in nodes:
                assert ("backward_of" in node.meta) == ("backward" in str(operator))

    @pytest.mark.parametrize("size", [(4, 21, 17), (1, 30, 9), (7, 16, 16)])
    def test_dynamic_sizes(self, size: tuple[int, int, int]) -> None:
        torch.manual_seed(0)
        batch, height, width = Dim("batch", min=1, max=64), Dim("height", min=8, max=64), Dim("width", min=8, max=64)
        model = Classifier()
        shapes = {"x": {0: batch, 2: height, 3: width}, "labels": {0: batch}}
        program = aot_export(model, images(3), mode="joint", dynamic_shapes=shapes)
        program = run_passes(program, (lower_convolution_backward, lower_convolution_weight_gradient))
        x = torch.randn(size[0], 3, *size[1:], requires_grad=True)
        labels = torch.randint(0, 6, (size[0],))
        expected = joint_reference(model, x, labels)
        wanted = [expected["outputs"]["loss"], expected["outputs"]["logits"]]
        wanted += [gradient for gradient in expected["gradients"].values() if gradient is not None]
        wanted += expected["input_gradients"]
        for value, reference in zip(answers(program, x, labels), wanted, strict=True):
            torch.testing.assert_close(value.double(), reference, rtol=2e-4, atol=2e-6)

    def test_inputs_that_are_written_and_read_by_the_backward(self) -> None:
        class Writing(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.randn(3))

            def forward(self, x: Tensor, total: Tensor) -> Tensor:
                loss = (x * self.weight).square().sum()
                total.add_(loss.detach())
                return loss

        model = Writing()
        program = aot_export(model, (torch.randn(3), torch.zeros(())), mode="joint")
        assert [spec.mutated for spec in program.signature.inputs] == [False, True]
        x, total = torch.randn(3), torch.tensor(5.0)
        loss, gradient = program.runnable()(x, total)
        torch.testing.assert_close(total, 5 + loss)
        torch.testing.assert_close(gradient, 2 * x.square() * model.weight.detach())


class TestArchives:
    def test_a_network_with_a_dynamic_batch(self, build: Build) -> None:
        torch.manual_seed(1)
        batch = Dim("batch", min=1, max=64)
        model = Classifier()
        archive = build(model, images(4), mode="joint", dynamic_shapes={"x": {0: batch}, "labels": {0: batch}})
        assert archive.entry_names == ["joint"]
        # A norm over one image per channel and position has few samples: its backward cancels much.
        check_joint(archive, model, images(4), images(9), images(2), tolerance=1e-3)

    def test_running_statistics_are_state(self, build: Build) -> None:
        class Normed(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.norm = nn.BatchNorm1d(3)

            def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
                y = self.norm(x)
                return (y * x).sum(), self.norm.running_mean.clone(), self.norm.num_batches_tracked.clone()

        model = Normed()
        archive = build(model, (torch.randn(8, 3),), mode="joint")
        context = archive.context()
        for step in range(3):
            x = torch.randn(8, 3) + step
            expected = joint_reference(model, x)["outputs"]
            model(x)
            got = context(x)["outputs"]
            torch.testing.assert_close(got[1].double(), expected[1], rtol=1e-5, atol=1e-6)
            assert got[2].item() == step + 1

    @pytest.mark.parametrize("name", ["attention", "embedding", "pooling", "losses"])
    def test_layers(self, name: str, build: Build) -> None:
        torch.manual_seed(2)
        model, args = LAYERS[name]()
        check_joint(build(model, args, mode="joint"), model, args, tolerance=1e-3)

    def test_bfloat16(self, build: Build) -> None:
        torch.manual_seed(3)
        model = Squared(nn.Conv2d(4, 8, 3)).bfloat16()
        x = torch.randn(2, 4, 8, 8).bfloat16()
        check_joint(build(model, (x,), mode="joint"), model, (x,), tolerance=3e-2)

    def test_results_carry_no_gradient(self, build: Build) -> None:
        """There is no double backward through an archive: what it returns has no history."""
        model = Squared(nn.Linear(3, 2))
        x = torch.randn(4, 3, requires_grad=True)
        result = build(model, (x,), mode="joint")(x.detach())
        for value in (result["outputs"], *result["gradients"].values(), result["input_gradients"]["x"]):
            assert not value.requires_grad
        with pytest.raises(RuntimeError, match="does not require grad"):
            result["input_gradients"]["x"].sum().backward()


def attention() -> tuple[nn.Module, tuple[Tensor, ...]]:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project, self.norm = nn.Linear(16, 48), nn.LayerNorm(16)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            q, k, v = self.project(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
            z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return F.mse_loss(z.transpose(1, 2).flatten(2), y)

    return Attention(), (torch.randn(2, 5, 16, requires_grad=True), torch.randn(2, 5, 16))


def embedding() -> tuple[nn.Module, tuple[Tensor, ...]]:
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(10, 8, padding_idx=1)

        def forward(self, ids: Tensor, y: Tensor) -> Tensor:
            return F.mse_loss(F.linear(self.table(ids), self.table.weight), y)

    return Words(), (torch.randint(0, 10, (3, 4)), torch.randn(3, 4, 10))


def pooling() -> tuple[nn.Module, tuple[Tensor, ...]]:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            pooled = F.max_pool2d(y, 3, 2, 1).square().mean() + F.avg_pool2d(y, 2).cos().mean()
            return pooled + F.interpolate(y, scale_factor=2, mode="bilinear").sin().mean()

    return Pooled(), (torch.randn(2, 3, 12, 12, requires_grad=True),)


def losses() -> tuple[nn.Module, tuple[Tensor, ...]]:
    class Losses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor, y: Tensor, labels: Tensor) -> Tensor:
            z = self.linear(x)
            divergence = F.kl_div(F.log_softmax(z, 1), F.softmax(y, 1), reduction="batchmean")
            weighted = F.cross_entropy(z, labels, weight=y.new_tensor([1.0, 2.0, 0.5, 1.0]), ignore_index=2)
            return divergence + weighted + F.smooth_l1_loss(z, y) + F.binary_cross_entropy_with_logits(z, y.sigmoid())

    return Losses(), (torch.randn(6, 4), torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 2, 1]))


LAYERS = {"attention": attention, "embedding": embedding, "pooling": pooling, "losses": losses}


class TestErrors:
    def test_nothing_requires_grad(self) -> None:
        with pytest.raises(CaptureError, match="no parameter of the model requires grad") as caught:
            aot_export(Squared(nn.Linear(3, 3)).requires_grad_(False), (torch.randn(2, 3),), mode="joint")
        assert "requires_grad_" in str(caught.value.hint)

    def test_the_loss_is_no_scalar(self) -> None:
        with pytest.raises(CaptureError, match=r"the loss is a tensor of shape \(2, 3\)") as caught:
            aot_export(nn.Linear(3, 3), (torch.randn(2, 3),), mode="joint")
        assert "first tensor" in str(caught.value.hint)

    def test_the_loss_is_no_floating_number(self) -> None:
        class Counting(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x).gt(0).sum()

        with pytest.raises(CaptureError, match=r"the loss is a tensor of shape \(\) and torch.int64"):
            aot_export(Counting(3, 3), (torch.randn(2, 3),), mode="joint")

    def test_there_is_no_loss(self) -> None:
        class Silent(nn.Linear):
            def forward(self, x: Tensor) -> None:
                return None

        with pytest.raises(CaptureError, match="does not return a tensor"):
            aot_export(Silent(3, 3), (torch.randn(2, 3),), mode="joint")

    def test_the_loss_is_detached(self) -> None:
        class Detached(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x).sum().detach()

        with pytest.raises(CaptureError, match="does not depend on a tensor that requires grad") as caught:
            aot_export(Detached(3, 3), (torch.randn(2, 3),), mode="joint")
        assert "detach()" in str(caught.value.hint)

    def test_double_backward(self) -> None:
        class Penalty(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                x = x.detach().requires_grad_()
                (slope,) = torch.autograd.grad(super().forward(x).sum(), x, create_graph=True)
                return slope.square().sum()

        with pytest.raises(CaptureError, match="double backward is not supported"):
            aot_export(Penalty(3, 3), (torch.randn(2, 3),), mode="joint")

    def test_a_backward_that_torch_cannot_trace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Total(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x).sum()

        # None is known, so torch fails for one.
        def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError("no")

        monkeypatch.setattr("torch._functorch.aot_autograd.aot_export_module", fail)
        with pytest.raises(CaptureError, match="AOTAutograd cannot trace the backward") as caught:
            aot_export(Total(4, 4), (torch.randn(4, 4),), mode="joint")
        assert 'mode="forward"' in str(caught.value.hint)

    def test_a_backward_that_torch_would_drop(self) -> None:
        class Rounded(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor) -> Tensor:
                return x.round()

            @staticmethod
            def backward(ctx: Any, gradient: Tensor) -> Tensor:
                return gradient

        class Straight(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return Rounded.apply(super().forward(x)).sum()

        with pytest.raises(CaptureError, match=r"Rounded is a torch.autograd.Function") as caught:
            aot_export(Straight(4, 4), (torch.randn(4, 4),), mode="joint")
        assert "custom_op" in str(caught.value.hint)
        # Without gradients there is nothing to lose.
        aot_export(Straight(4, 4), (torch.randn(4, 4),))

    def test_an_operator_whose_backward_has_no_kernel_is_named(
        self, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shims = lower.supported_shims() - {"aoti_torch_cpu_grid_sampler_2d_backward"}
        monkeypatch.setattr(lower, "supported_shims", lambda: shims)

        class Sampled(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.conv = nn.Conv2d(3, 4, 1)

            def forward(self, x: Tensor, grid: Tensor) -> Tensor:
                return F.grid_sample(self.conv(x), grid, align_corners=False).mean()

        program = aot_export(Sampled(), (torch.randn(2, 3, 6, 6), torch.rand(2, 4, 4, 2)), mode="joint")
        with pytest.raises(UnsupportedOperatorError, match="grid_sampler_2d_backward"):
            build_archive(program, tmp_path / "model.aotpack")


def test_aot_export_module_is_as_expected() -> None:
    """A canary: fails when the private interfaces that joint.py stands on move."""
    from torch._functorch.aot_autograd import _aot_export_function, aot_export_module

    assert list(inspect.signature(_aot_export_function).parameters)[:2] == ["func", "args"]
    names = list(inspect.signature(aot_export_module).parameters)
    assert names[:2] == ["mod", "args"]
    assert {"decompositions", "trace_joint", "output_loss_index"} <= set(names)
    model = nn.Linear(2, 1)
    module = torch.fx.symbolic_trace(Written())
    traced, signature = aot_export_module(
        module,
        [model.weight.detach().requires_grad_(), torch.zeros(1), torch.randn(3, 2)],
        trace_joint=True,
        output_loss_index=0,
        decompositions={},
    )
    # Updated arguments, then results, then gradients in the order of the arguments.
    assert list(signature.user_inputs) == [node.name for node in traced.graph.find_nodes(op="placeholder")]
    assert list(signature.user_inputs_to_mutate.values()) == [signature.user_inputs[1]]
    shapes = [tuple(node.meta["val"].shape) for node in traced.graph.output_node().args[0]]
    assert shapes == [(1,), (), (1, 2)]


class Written(nn.Module):
    def forward(self, weight: Tensor, count: Tensor, x: Tensor) -> tuple[Tensor]:
        count.add_(1)
        return ((x @ weight.t()).square().sum(),)


def test_joint_models_run_on_the_runtime_alone(build: Build) -> None:
    """One call forward and backward through numpy arrays, as a service without torch would make it."""
    numpy = pytest.importorskip("numpy")
    model = Squared(nn.Linear(3, 2))
    archive: aotpack.Model = build(model, (torch.randn(4, 3),), mode="joint")
    x = numpy.random.default_rng(0).standard_normal((4, 3)).astype("float32")
    gradient = archive(x)["gradients"]["model.weight"]
    expected = joint_reference(model, torch.from_numpy(x))["gradients"]["model.weight"]
    numpy.testing.assert_allclose(numpy.asarray(gradient), expected.numpy(), rtol=1e-4, atol=1e-6)
