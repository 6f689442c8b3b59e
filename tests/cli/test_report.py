"""`aotpack inspect --graph` and `--html` without a browser."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aotpack.archive import ArchiveReader
from aotpack.cli.app import app
from aotpack.cli.report import embedded, render
from aotpack.cli.report_data import report_data
from tests.support.described import HOSTILE

Archive = Callable[[str], Path]


def invoke(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


class Page(HTMLParser):
    """The elements of a page by tag, with attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "input", "br"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open, tag
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    @property
    def is_closed(self) -> bool:
        return not self._open


@pytest.fixture(scope="module")
def page_text(described_archives: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    result = invoke("inspect", described_archives / "described.aotpack", "--html", path)
    assert result.exit_code == 0, result.output
    assert f"wrote {path}" in result.stderr
    assert result.stdout == ""
    return path.read_text(encoding="utf-8")


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    value: dict[str, Any] = json.loads(found[1])
    return value


def test_the_page_is_well_formed_and_self_contained(page_text: str) -> None:
    page = Page(page_text)
    assert page.is_closed
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 2
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(tags)
    assert not any(
        key in attributes for _, attributes in page.elements for key in ("src", "srcset", "onclick", "style")
    )
    addresses = [attributes["href"] for _, attributes in page.elements if "href" in attributes]
    assert addresses
    assert all(address and address.startswith("#") for address in addresses)
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    # Sections are made by the script.
    script = page.texts["script"][1]
    made = set(re.findall(r'section\("(\w+)"', script))
    assert {address[1:] for address in addresses if address} <= ids | made
    assert not re.search(
        r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import|fetch\(|XMLHttpRequest|WebSocket", page_text
    )


def test_the_policy_allows_the_script_of_the_page_only(page_text: str) -> None:
    page = Page(page_text)
    (policy,) = [a["content"] for tag, a in page.elements if tag == "meta" and "http-equiv" in a]
    digest = base64.b64encode(hashlib.sha256(page.texts["script"][1].encode()).digest()).decode()
    assert policy is not None
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy


def test_names_cannot_leave_their_place(page_text: str) -> None:
    page = Page(page_text)
    assert page.texts["h1"] == [HOSTILE]
    assert len([tag for tag, _ in page.elements if tag == "script"]) == 2
    raw = page_text.partition('id="data">')[2].partition("</script>")[0]
    assert "<" not in raw
    data = data_of(page_text)
    assert data["entries"][0]["variants"][0]["classes"][HOSTILE] == "LayerNorm"


@pytest.mark.parametrize("text", ["</script>", "<!--<script>", "]]>", "@DATA@ @SCRIPT@", "\u2028", "\ud800", "é"])
def test_any_text_comes_back_from_the_page(text: str, archive: Archive) -> None:
    with ArchiveReader(archive("affine")) as reader:
        data = {**report_data(reader), "name": text.replace("\ud800", "?"), "missing": [text]}
    found = data_of(render(data))
    assert found["missing"] == [text]
    assert json.loads(embedded({"x": text})) == {"x": text}


def test_what_is_missing_is_said(archive: Archive, page_text: str) -> None:
    with ArchiveReader(archive("affine")) as reader:
        data = report_data(reader)
    assert any("no description" in text for text in data["missing"])
    assert data["entries"][0]["variants"][0]["nodes"] is None
    assert render(data)
    assert data_of(page_text)["missing"] == ["Times are not measured: add --profile."]


def test_everything_is_in_the_data(page_text: str, described_archives: Path) -> None:
    data = data_of(page_text)
    (entry,) = data["entries"]
    assert entry["dims"] == [{"name": "batch", "min": 1, "max": 16, "multipleOf": 1}]
    (variant,) = entry["variants"]
    assert {found["name"] for found in variant["passes"]} >= {"fold-batch-norm", "pack-linear"}
    (step,) = variant["implementations"][0]["steps"]
    assert step["hooks"]
    assert all(kernel[2] for kernel in step["kernels"])
    assert step["blocks"]
    assert sum(file["size"] for file in data["files"]) < data["size"]
    head = next(constant for constant in data["constants"] if "head.weight" in constant["from"])
    assert head["role"] == "packed"
    assert head["readBy"] == ["forward"]


def test_stages_and_transfers(described_archives: Path) -> None:
    with ArchiveReader(described_archives / "staged.aotpack") as reader:
        data = report_data(reader)
    (implementation,) = data["entries"][0]["variants"][0]["implementations"]
    assert [step["device"] for step in implementation["steps"]] == ["near", "far"]
    (transfer,) = implementation["transfers"]
    assert (transfer["from"], transfer["to"], transfer["shape"], transfer["moves"]) == (0, 1, "[batch, 16]", True)
    assert data["devices"] == ["near", "far"]


def test_constants_that_share_bytes(archive: Archive) -> None:
    with ArchiveReader(archive("affine")) as reader:
        (constant,) = reader.manifest.constants
        twin = dataclasses.replace(constant, name="twin")
        reader.manifest = dataclasses.replace(reader.manifest, constants=(constant, twin))
        first, second = report_data(reader)["constants"]
    assert (first["sharedWith"], second["sharedWith"]) == (["twin"], [constant.name])
    assert (first["first"], second["first"]) == (True, False)


def test_the_graph_as_a_table(described_archives: Path) -> None:
    result = invoke("inspect", described_archives / "described.aotpack", "--graph")
    assert result.exit_code == 0, result.output
    lines = result.stdout.partition("graph of forward")[2].splitlines()
    (head,) = [line for line in lines if line.startswith("linear_1 ")]
    assert re.match(r"linear_1 +aten.linear +head \(Linear\) +\[batch, 8\] +float32 +cpu +linear, head_weight", head)
    assert any(line.startswith("true_graph_0.linear ") for line in lines)
    staged = invoke("inspect", described_archives / "staged.aotpack", "--graph").stdout
    assert re.search(r"tanh +aten.tanh +Staged +\[batch, 16\] +float32 +cpu +2 +linear", staged)


def test_the_graph_in_json(described_archives: Path, archive: Archive) -> None:
    value = json.loads(invoke("inspect", described_archives / "staged.aotpack", "--json").stdout)
    nodes = value["programs"]["forward"]["default"]["nodes"]
    tanh = next(node for node in nodes if node["operator"] == "aten.tanh")
    assert tanh["values"] == [{"dtype": "float32", "shape": ["batch", 16], "device": "cpu"}]
    assert json.loads(invoke("inspect", archive("affine"), "--json").stdout)["programs"] is None


def test_no_graph_without_a_description(archive: Archive) -> None:
    result = invoke("inspect", archive("affine"), "--graph")
    assert result.exit_code == 1
    assert "no description of its programs" in result.stderr
    assert "hint: build the archive again" in result.stderr
