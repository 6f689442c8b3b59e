"""Models and engines of other precisions."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import engines
from bench.precision import precision_of

torch: Any = pytest.importorskip("torch")


def test_precision_is_the_end_of_a_name() -> None:
    assert precision_of("resnet50") == "fp32"
    assert precision_of("resnet50-b8") == "fp32"
    assert precision_of("bert-bf16") == "bf16"
    assert precision_of("llama1b-decode-w4") == "w4"


@pytest.mark.parametrize(
    ("engine", "model", "offered"),
    [
        ("eager", "bert-bf16", True),
        ("eager", "resnet50-int8", False),
        ("onnxruntime", "bert-bf16", False),
        ("llamacpp", "bert", False),
        ("llamacpp", "llama1b-decode", True),
        ("llamacpp", "llama1b-decode-w4", True),
        ("gpu_eager", "bert-fp16", True),
    ],
)
def test_engines_have_some_models(engine: str, model: str, offered: bool) -> None:
    assert engines.offers(engine, model) == offered


def test_a_narrow_module_has_wide_inputs_and_outputs() -> None:
    from bench.narrow import Narrow

    inside = torch.nn.Linear(64, 8)
    x = torch.randn(3, 64)
    module = Narrow(inside.bfloat16())
    y = module(x)
    assert y.dtype == torch.float32
    assert torch.equal(y, y.bfloat16().float())
    wide = module.float()(x)
    assert not torch.equal(wide, wide.bfloat16().float())
    assert torch.allclose(wide, y, atol=3e-2)


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_linears_hold_the_numbers(bits: int) -> None:
    from bench.quantized import GROUP, QuantizedLinear

    numbers = torch.randint(-8, 8, (6, 2 * GROUP), dtype=torch.int8)
    scales = torch.rand(6, 2).half()
    linear = QuantizedLinear(numbers, scales, bits)
    assert linear.numbers.numel() == numbers.numel() * bits // 8
    expected = numbers.float() * scales.float().repeat_interleave(GROUP, 1)
    assert torch.equal(linear.matrix(), expected)


def test_a_step_of_several_tokens_is_several_steps() -> None:
    from bench.decoding import LlamaStep

    def make() -> Any:
        torch.manual_seed(0)
        return LlamaStep(16, layers=2, width=32, inner=48, heads=4, key_heads=2, vocabulary=11)

    together, apart = make(), make()
    tokens = torch.randint(0, 11, (1, 5))
    with torch.no_grad():
        logits = together(tokens, torch.arange(5))
        steps = [apart(tokens[:, i : i + 1], torch.tensor([i])) for i in range(5)]
    assert torch.allclose(logits, torch.cat(steps, 1), atol=1e-5)


def test_a_detector_has_boxes_and_probabilities() -> None:
    from bench.detection import CLASSES, Yolo

    with torch.no_grad():
        found = Yolo().eval()(torch.randn(2, 3, 64, 96))
    assert found.shape == (2, 4 + CLASSES, 8 * 12 + 4 * 6 + 2 * 3)
    assert (found[:, 2:4] > 0).all()
    assert ((found[:, 4:] > 0) & (found[:, 4:] < 1)).all()


def test_int8_files_have_quantized_convolutions(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime"), pytest.importorskip("onnxscript")
    from bench.int8 import write_int8

    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)).eval()
    x = torch.randn(1, 3, 9, 9)
    path = write_int8(module, (x,), tmp_path / "int8")
    graph = onnx.load(path).graph
    assert {"QuantizeLinear", "DequantizeLinear"} <= {node.op_type for node in graph.node}
    # Not by ONNX Runtime's kernels, whose sums of two products saturate on processors without VNNI.
    from onnx.reference import ReferenceEvaluator

    (found,) = ReferenceEvaluator(str(path)).run(None, {graph.input[0].name: x.numpy()})
    wanted = module(x).detach().numpy()
    assert 0 < np.abs(found - wanted).max() < 0.1 * np.abs(wanted).max()


def test_llama_cpp_blocks_hold_the_numbers() -> None:
    gguf = pytest.importorskip("gguf")
    from bench.engines.llamacpp_engine import _matrix
    from bench.quantized import QuantizedLinear

    numbers = torch.randint(-8, 8, (8, 64), dtype=torch.int8)
    for bits in (4, 8):
        linear = QuantizedLinear(numbers, torch.rand(8, 2).half(), bits)
        data, kind = _matrix(linear, slice(2, 6), 0)
        assert np.array_equal(gguf.quants.dequantize(data, kind), linear.matrix()[2:6].numpy())
