"""Files that are malformed, or refer to what they must not."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from aotpack.errors import UnsupportedOperatorError
from aotpack.export.onnx import trial
from aotpack.export.onnx.base.errors import OnnxError
from aotpack.export.onnx.importer import load_onnx
from aotpack.export.onnx.reading import read_model
from tests.export.onnx.models import HEAD, SHAPES, model

pytestmark = pytest.mark.torch


def with_weight(location: str, *, offset: int = 0, length: int | None = None, size: int = 512) -> onnx.ModelProto:
    """`y = x + w`, where the data of `w` is in another file."""
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[size], data_location=TensorProto.EXTERNAL)
    entries = {"location": location, "offset": str(offset)} | ({} if length is None else {"length": str(length)})
    for key, value in entries.items():
        weight.external_data.add(key=key, value=value)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"], name="plus")], "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def saved(proto: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_data_of_other_files_is_mapped(tmp_path: Path) -> None:
    data = np.arange(600, dtype=np.float32)
    (tmp_path / "model.data").write_bytes(data.tobytes())
    graph = read_model(saved(with_weight("model.data", offset=64, length=2048), tmp_path)).graph
    weight = graph.initializers["w"]
    assert torch.equal(weight, torch.from_numpy(data[16:528]))
    assert not weight._is_view()
    assert list(graph.inputs) == ["x"]


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "a/../../secret", "link", "", "nothing", "folder"])
def test_data_stays_in_the_folder_of_the_model(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(2048))
    (folder / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OnnxError, match=r"outside of the folder|does not say|cannot be read|not a file"):
        read_model(saved(with_weight(location), folder))


@pytest.mark.parametrize(("offset", "length"), [(0, 2047), (1, None), (-4, None), (10**18, None)])
def test_data_has_the_size_of_the_tensor(tmp_path: Path, offset: int, length: int | None) -> None:
    (tmp_path / "model.data").write_bytes(bytes(2048))
    with pytest.raises(OnnxError, match="needs 2048 bytes"):
        read_model(saved(with_weight("model.data", offset=offset, length=length), tmp_path))


def test_data_of_other_files_needs_a_file() -> None:
    with pytest.raises(OnnxError, match="was not read from a file"):
        read_model(with_weight("model.data"))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not an ONNX"),
        (b"PK\x03\x04 a zip file", "not an ONNX"),
        (SHAPES.SerializeToString()[:-40], "not an ONNX"),
    ],
)
def test_other_files(data: bytes, text: str) -> None:
    with pytest.raises(OnnxError, match=text):
        read_model(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("g (float[2] x) => (float[2] y) { y = Add(x, z) }", "invalid"),
        ("g (float[2] x) => (float[2] y) { y = Add(x, z)\n z = Neg(y) }", "invalid"),
        ("g (float[2] x) => (float[2] y) { y = Neg(x)\n y = Abs(x) }", "invalid"),
        ("g (float[2] x) => (float[2] z) { y = Neg(x) }", "invalid|no node computes"),
        ("g (float[2] x, int64[2] i) => (float[2] y) { y = Add(x, i) }", "types of the model are wrong"),
        ("g (float[2] x) => (float[2] y) { y = Softmax<axis = 1.5>(x) }", "invalid"),
    ],
)
def test_malformed_graphs(text: str, message: str) -> None:
    with pytest.raises(OnnxError, match=message):
        read_model(model(text))


def test_opsets_that_are_too_new() -> None:
    with pytest.raises(OnnxError, match="opset 1000; supported are"):
        read_model(model("g (float[2] x) => (float[2] y) { y = Neg(x) }", HEAD.replace("18", "1000")))


def test_functions_are_inlined_unless_they_have_no_end() -> None:
    head = '<ir_version: 9, opset_import: ["" : 18, "local" : 1]>\n'
    text = """g (float[2] x) => (float[2] y) { y = local.twice(x) }
    <opset_import: ["" : 18, "local" : 1], domain: "local"> twice (a) => (b) { b = Add(a, a) }"""
    assert [node.op for node in read_model(model(text, head)).graph.nodes] == ["Add"]
    with pytest.raises(OnnxError, match=r"calls itself|invalid"):
        read_model(model(text.replace("Add(a, a)", "local.twice(a)"), head))
    levels = "".join(
        f'<opset_import: ["" : 18, "local" : 1], domain: "local"> f{i} (a) => (b) '
        f"{{ c = local.f{i + 1}(a)\n b = local.f{i + 1}(c) }}\n"
        for i in range(30)
    )
    text = f"""g (float[2] x) => (float[2] y) {{ y = local.f0(x) }}
    {levels}<opset_import: ["" : 18], domain: "local"> f30 (a) => (b) {{ b = Neg(a) }}"""
    with pytest.raises(OnnxError, match="once its functions are inlined"):
        read_model(model(text, head))


def test_operators_that_are_missing_are_listed_together() -> None:
    head = '<ir_version: 9, opset_import: ["" : 18, "mine" : 3]>\n'
    text = "g (float[2] x) => (float[2] y) { a = mine.First(x)\n b = mine.Second(a)\n y = mine.First(b) }"
    with pytest.raises(UnsupportedOperatorError) as caught:
        load_onnx(model(text, head))
    assert caught.value.operators == ("mine.First (opset 3)", "mine.Second (opset 3)")
    assert "First_a, First_y" in str(caught.value)


def test_strings_are_refused() -> None:
    with pytest.raises(OnnxError, match="STRING are not supported"):
        load_onnx(model("g (string[2] x) => (string[2] y) { y = Identity(x) }"))


def test_names_are_utf8() -> None:
    data = model("g (float[2] x) => (float[2] y) { y = Neg(x) }").SerializeToString()
    assert data.count(b"Neg") == 1
    with pytest.raises(OnnxError, match="is not UTF-8"):
        read_model(data.replace(b"Neg", b"\xff\xfe\xff"))


def test_results_have_dims_that_memory_holds() -> None:
    """The type inference of onnx would make as many dims as the shape has elements."""
    proto = model("g (float[2] x, int64[n] shape) => (float[a] y) { y = Expand(x, shape) }")
    proto.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 1 << 40
    with pytest.raises(OnnxError, match="too many dims"):
        read_model(proto)


def _with_dim(proto: onnx.ModelProto, where: str, size: int) -> onnx.ModelProto:
    values = {"input": proto.graph.input, "output": proto.graph.output, "value_info": proto.graph.value_info}[where]
    if where == "value_info":
        values.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [2]))
    values[-1].type.tensor_type.shape.dim[-1].dim_value = size
    return proto


@pytest.mark.parametrize("size", [-2, -(2**31), -(2**63)])
@pytest.mark.parametrize("where", ["input", "output", "value_info"])
def test_negative_dims(where: str, size: int) -> None:
    """The type inference of onnx reads beyond its memory by some of them."""
    proto = model("g (float[2, 2] x, int64[2, 1] i) => (float[2, 2] y) { t = GatherND(x, i)\n y = Relu(t) }")
    with pytest.raises(OnnxError, match=f"has a dim of {size}"):
        read_model(_with_dim(proto, where, size))


@pytest.mark.parametrize("where", ["input", "output", "value_info"])
def test_dims_of_minus_one_are_unknown(where: str) -> None:
    proto = model("g (float[2, 2] x, float[2] z) => (float[2, 2] y) { t = Neg(z)\n y = Add(x, t) }")
    graph = read_model(_with_dim(proto, where, -1)).graph
    assert list(graph.inputs) == ["x", "z"]


@pytest.mark.parametrize("equation", ["ij-", "i*j->i", "ij->i->j", "ij-i", "i1->i"])
def test_equations_of_other_characters(equation: str) -> None:
    """With some of them the type inference of onnx does not end."""
    text = f'g (float[2, 3] x) => (float[2] y) {{ y = Einsum<equation = "{equation}">(x) }}'
    with pytest.raises(OnnxError, match="has the equation"):
        read_model(model(text))


@pytest.mark.parametrize(("equation", "rank"), [("ij->i", 1), ("ij", 2), ("... j -> ...", 1), ("Ij->I", 1)])
def test_equations(equation: str, rank: int) -> None:
    sizes = ", ".join("ab"[:rank])
    text = f'g (float[2, 3] x) => (float[{sizes}] y) {{ y = Einsum<equation = "{equation}">(x) }}'
    assert [node.op for node in read_model(model(text)).graph.nodes] == ["Einsum"]


def test_functions_of_one_name() -> None:
    head = '<ir_version: 9, opset_import: ["" : 18, "local" : 1]>\n'
    function = '<opset_import: ["" : 18], domain: "local"> f (a) => (b) { b = Neg(a) }\n'
    with pytest.raises(OnnxError, match=r"cannot be inlined|invalid"):
        read_model(model(f"g (float[2] x) => (float[2] y) {{ y = local.f(x) }}\n{function}{function}", head))


@pytest.mark.parametrize("axis", [2**63 - 1, -(2**63), 7])
def test_what_ends_the_type_inference_of_onnx_does_not_end_the_process(axis: int) -> None:
    proto = model(
        "g (float[2, 3] x, float[3] w) => (float[2, 3] y, float[2, 1] m, float[2, 1] d)"
        " { y, m, d = LayerNormalization<axis = 1>(x, w) }"
    )
    proto.graph.node[0].attribute[0].i = axis
    # Some are only seen when the model is called.
    with contextlib.suppress(OnnxError):
        load_onnx(proto)


def test_a_fork_that_is_killed_or_has_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def killed() -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        return b""

    def endless() -> bytes:
        time.sleep(60)
        return b""

    def refused() -> bytes:
        raise OnnxError("no", hint="yes")

    with pytest.raises(OnnxError, match="the check ends with SIGSEGV"):
        trial.bytes_from_fork(killed, "the check")
    with pytest.raises(OnnxError, match="no") as caught:
        trial.bytes_from_fork(refused, "the check")
    assert caught.value.hint == "yes"
    with pytest.raises(ZeroDivisionError):
        trial.bytes_from_fork(lambda: bytes(1 // 0), "the check")
    assert trial.bytes_from_fork(lambda: b"x" * (3 << 20), "the check") == b"x" * (3 << 20)
    monkeypatch.setattr(trial, "_SECONDS", 0.2)
    with pytest.raises(OnnxError, match="the check has no end"):
        trial.bytes_from_fork(endless, "the check")
