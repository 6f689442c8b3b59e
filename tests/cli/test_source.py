"""Each way in which `aotpack build SOURCE` can be wrong has its own message; torch is not needed to say so."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from aotpack.cli.dims import DimOption, dynamic_shapes, parse_dims
from aotpack.cli.source import check_source, load_source
from aotpack.cli.variants import VariantOption, parse_variants
from aotpack.errors import BuildError
from aotpack.spec import Dim

GOOD = "def model():\n    return len\n\ndef example_inputs():\n    return (1, 2)\n"


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.chdir(tmp_path)
    for name in list(sys.modules):
        if name.startswith("aotpack_source_"):
            monkeypatch.delitem(sys.modules, name)


def test_a_file(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("value = 3\n")
    (tmp_path / "net.py").write_text("import beside\n" + GOOD + "\ndef dynamic_shapes():\n    return beside.value\n")
    source = load_source(str(tmp_path / "net.py"))
    assert (source.name, source.model, source.args, source.kwargs) == ("net", len, (1, 2), None)
    assert source.dynamic_shapes == 3


def test_keyword_arguments(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(GOOD.replace("(1, 2)", "{'x': 1}"))
    source = load_source("net.py")
    assert (source.args, source.kwargs) == ((), {"x": 1})


def test_a_module_and_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "zoo").mkdir()
    code = "\n".join(
        f"def {name}():\n    return {value}"
        for name, value in {
            "three": "len, (1,), {'x': {0: 'batch'}}",
            "two": "len, {'x': 1}",
            "one": "len",
            "example_inputs": "(7,)",
        }.items()
    )
    (tmp_path / "zoo" / "nets.py").write_text(code)
    (tmp_path / "zoo" / "__init__.py").write_text("")
    three, two, one = (load_source(f"zoo.nets:{name}") for name in ("three", "two", "one"))
    assert (three.name, three.args, three.dynamic_shapes) == ("nets", (1,), {"x": {0: "batch"}})
    assert (two.args, two.kwargs, two.dynamic_shapes) == ((), {"x": 1}, None)
    assert one.args == (7,)


def test_an_exported_program(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(b"")
    assert load_source("net.pt2").exported == Path("net.pt2")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("", r"no function model\(\)"),
        ("model = 3", "model of net.py is a int"),
        ("def model(x):\n    pass", "without arguments; it requires x"),
        ("def model():\n    return len", r"no function example_inputs\(\)"),
        (GOOD.replace("return len", "return 3"), r"returned a int"),
        (GOOD.replace("(1, 2)", "3"), r"the return value of example_inputs\(\) is a int"),
        (GOOD.replace("return len", "return (len,)"), "tuple of 1"),
        (GOOD.replace("return len", "return 1 / 0"), r"model\(\) failed: ZeroDivisionError: .*net.py:2: return 1 / 0"),
        ("def (", r"SyntaxError.*net.py:1"),
        ("import nothing_like_it", "ModuleNotFoundError"),
    ],
)
def test_wrong_files(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "net.py").write_text(code)
    with pytest.raises(BuildError, match=message):
        load_source("net.py")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nothing.py", "no such file: nothing.py"),
        ("nothing.pt2", "no such file: nothing.pt2"),
        ("folder.py", "is a folder, not a file"),
        ("not_a_module_at_all:model", "no module named 'not_a_module_at_all'"),
        ("json:nothing", r"no function nothing\(\)"),
    ],
)
def test_what_is_not_there(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "folder.py").mkdir()
    with pytest.raises(BuildError, match=message):
        load_source(source)


@pytest.mark.parametrize("source", ["model", "a b:c", "pkg.mod:", ":f", "pkg.mod:a.b"])
def test_what_is_not_understood(source: str) -> None:
    with pytest.raises(typer.BadParameter):
        load_source(source)


def test_dims() -> None:
    options = [
        "x.0=batch:1..64",
        "mask.1=batch",
        "batch.ids.0=n:..9%3",
        "y.0=2*batch+1",
        "k=k:-5..",
        "z.1=n-2",
        "f=dynamic",
    ]
    assert parse_dims(options) == [
        DimOption("x.0", "batch", min=1, max=64),
        DimOption("mask.1", "batch"),
        DimOption("batch.ids.0", "n", max=9, multiple_of=3),
        DimOption("y.0", "batch", mul=2, add=1),
        DimOption("k", "k", min=-5),
        DimOption("z.1", "n", add=-2),
        DimOption("f", "dynamic"),
    ]
    assert parse_dims(["auto"]) == [DimOption("", "auto")]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["x"], "'x' is invalid: use INPUT.AXIS=NAME"),
        (["x:0=batch:1:64"], "is invalid"),
        (["x.0="], "is invalid"),
        (["x.0=1"], "is invalid"),
        (["x.0=b:5"], "is invalid"),
        (["x.0=b:5..1"], "the maximum 1 is less than the minimum 5"),
        (["x.0=b%0"], "the multiple must be at least 1"),
        (["x.0=2*b:1..4"], "give the range of 'b' in an option without a formula"),
        (["x.0=auto:1..4"], "'auto' cannot be the name of a dim"),
        (["x.0=b", "x.0=c"], "'x.0' is given twice"),
        (["x.0=b:1..2", "y.0=b:1..3"], "the dim 'b' has two different ranges"),
        (["auto", "y.0=b"], "cannot be combined"),
    ],
)
def test_wrong_dims(options: list[str], message: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(message)):
        parse_dims(options)


def test_dims_find_their_inputs() -> None:
    torch = pytest.importorskip("torch")

    def model(x, batch, n, f):  # type: ignore[no-untyped-def]
        return x

    args = (torch.zeros(4, 2), {"ids": torch.zeros(8)}, 3, 0.5)

    def shapes(*options: str) -> Any:
        return dynamic_shapes(parse_dims(options), model, args, None)

    batch = Dim("batch", 1, 64, 2)
    assert shapes("x.0=batch:1..64%2", "batch.ids.0=2*batch", "n=count", "f=dynamic") == {
        "x": {0: batch},
        "batch.ids": {0: 2 * batch},
        "n": "count",
        "f": "dynamic",
    }
    assert shapes("auto") == "auto"
    for option, message in {
        "z.0=b": "no input 'z'; it has x, batch.ids, n, f",
        "x.2=b": "has 2 dims; there is no axis 2",
        "x=b": "is a tensor with 2 dims; select one, such as x.0=batch",
        "n.0=b": "the input 'n' is a int, which has no axes; use n=NAME",
        "batch.0=b": "no input 'batch'",
    }.items():
        with pytest.raises(typer.BadParameter, match=re.escape(message)):
            shapes(option)


ENTRIES = "def model():\n    return len\n\ndef entries():\n    return "


def test_several_entries(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(ENTRIES + "{'a': {'args': [1]}, 'b': {'kwargs': {'x': 2}, 'method': 'other'}}\n")
    source = load_source("net.py")
    assert source.entries == {"a": {"args": (1,)}, "b": {"args": (), "kwargs": {"x": 2}, "method": "other"}}


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ("{}", "returned nothing"),
        ("[1]", "returned a list"),
        ("{'a': 1}", "the entry 'a' of entries() is a int"),
        ("{'a': {'arguments': (1,)}}", "the entry 'a' of entries() has the unknown key 'arguments'"),
        ("{'a': {'args': 1}}", "the args of the entry 'a' are a int"),
    ],
)
def test_wrong_entries(tmp_path: Path, made: str, message: str) -> None:
    (tmp_path / "net.py").write_text(ENTRIES + made + "\n")
    with pytest.raises(BuildError, match=re.escape(message)):
        load_source("net.py")


def test_variants_are_parsed() -> None:
    assert parse_variants(None) is None
    assert parse_variants(["batch=1", "batch=2, length=-3", "general"]) == [
        VariantOption({"batch": 1}),
        VariantOption({"batch": 2, "length": -3}),
        VariantOption(),
    ]
    assert parse_variants(["a is batch.b", "batch=1, a is b is c,d is e"]) == [
        VariantOption(same=(("a", "batch.b"),)),
        VariantOption({"batch": 1}, (("a", "b", "c"), ("d", "e"))),
    ]
    for wrong in ("batch", "batch=", "batch=x", "=1", "1=1", "batch=1,", "batch=1,batch=2", "", "a is", "is b"):
        with pytest.raises(typer.BadParameter):
            parse_variants([wrong])


# ---- sources that do more than define a model -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("import sys; sys.exit(0)", "0"),
        ("exit(3)", "3"),
        ("raise SystemExit", "None"),
        ("import sys; sys.exit('no data')", "'no data'"),
        ("quit()", "None"),
    ],
)
def test_sources_that_exit(tmp_path: Path, line: str, code: str) -> None:
    (tmp_path / "net.py").write_text(line)
    with pytest.raises(BuildError, match=re.escape(f"importing net.py called exit({code})")) as caught:
        load_source("net.py")
    assert "net.py:1" in str(caught.value)
    assert '__name__ == "__main__"' in (caught.value.hint or "")
    name = f"made_{abs(hash(line))}"
    (tmp_path / f"{name}.py").write_text(f"def model():\n    {line}\n")
    for source in (f"{name}.py", f"{name}:model"):
        with pytest.raises(BuildError, match=re.escape(f"model() called exit({code})")):
            load_source(source)


def test_a_source_parses_its_own_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ["aotpack", "build", "net.py", "-o", "model.aotpack"]
    monkeypatch.setattr(sys, "argv", ours)
    parsing = "import argparse, sys\nparser = argparse.ArgumentParser()\n{}\nargs = parser.parse_args()\n" + GOOD
    (tmp_path / "net.py").write_text(parsing.format("parser.add_argument('--epochs', default=3)"))
    (tmp_path / "late.py").write_text("import sys\n" + GOOD.replace("return (1, 2)", "return tuple(sys.argv)"))
    assert load_source("net.py").args == (1, 2)
    assert load_source("late.py").args == ("late.py",)
    assert sys.argv is ours
    (tmp_path / "needs.py").write_text(parsing.format("parser.add_argument('data')"))
    with pytest.raises(BuildError, match=r"exit\(2\) .*needs.py:4: args = parser.parse_args\(\)"):
        load_source("needs.py")
    assert sys.argv is ours


def test_relative_imports_have_a_hint(tmp_path: Path) -> None:
    folder = tmp_path / "zoo" / "deep"
    folder.mkdir(parents=True)
    (tmp_path / "zoo" / "__init__.py").write_text("")
    (folder / "__init__.py").write_text("")
    (folder / "net.py").write_text("from .beside import model\n")
    with pytest.raises(BuildError, match="relative import") as caught:
        load_source("zoo/deep/net.py")
    assert "aotpack build zoo.deep.net:function" in (caught.value.hint or "")


def test_a_class_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("class Net:\n    pass\n" + GOOD.replace("return len", "return Net"))
    with pytest.raises(BuildError, match="returned the class Net, not an instance") as caught:
        load_source("net.py")
    assert "return Net(…)" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "source", ["nothing.py", "nothing.pt2", "pipe.pt2", "pipe.py", "weights.safetensors", "w.ckpt"]
)
def test_files_are_looked_at_without_running_or_torch(tmp_path: Path, source: str) -> None:
    os.mkfifo(tmp_path / "pipe.pt2")
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises((BuildError, typer.BadParameter)):
        check_source(source)
