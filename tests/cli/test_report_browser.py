"""The report in a real browser: light and dark, wide and narrow, by keyboard. Skipped where there is no Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aotpack.archive import ArchiveReader
from aotpack.cli.app import app
from aotpack.cli.report import render
from aotpack.cli.report_data import report_data
from tests.support.browser import Browser, find_browser
from tests.support.described import HOSTILE

EXECUTABLE = find_browser()
pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="there is no Chromium on this host")

FOCUSED = "document.activeElement"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert EXECUTABLE is not None
    with Browser(EXECUTABLE) as running:
        yield running


@pytest.fixture(scope="module")
def folder(described_archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of both archives, with profiles."""
    made = tmp_path_factory.mktemp("reports")
    for name in ("described", "staged"):
        path = described_archives / f"{name}.aotpack"
        result = CliRunner().invoke(app, ["inspect", str(path), "--profile", "--html", str(made / f"{name}.html")])
        assert result.exit_code == 0, result.output
    return made


@pytest.fixture
def page(browser: Browser, folder: Path) -> Browser:
    """The report of the first archive, just opened."""
    browser.events.clear()
    browser.open(folder / "described.html")
    return browser


def open_all(page: Browser) -> None:
    """Opens all details; those inside of others come with them."""
    for _ in range(4):
        page.run("document.querySelectorAll('details').forEach(each => { each.open = true })")
        settle(page)


def settle(page: Browser) -> None:
    """Waits for what the page does after an event."""
    page.run("new Promise(done => setTimeout(done, 150))")


def text_of(page: Browser, selector: str) -> str:
    return str(page.run(f"document.querySelector({selector!r}).innerText"))


def test_nothing_fails_and_nothing_is_loaded(page: Browser, folder: Path) -> None:
    assert page.errors() == []
    assert page.requests() == [(folder / "described.html").as_uri()]


def test_hostile_names_are_text(page: Browser) -> None:
    assert page.run("window.broken") is None
    assert page.run("document.querySelectorAll('img').length") == 0
    page.run("[...document.querySelectorAll('#graph button')].find(b => b.textContent === 'Open all modules').click()")
    assert HOSTILE in text_of(page, "#graph")
    assert page.run("window.broken") is None
    # The policy holds for scripts that come later, too.
    page.run(
        "{ const s = document.createElement('script'); s.textContent = 'window.broken = 1'; document.body.append(s) }"
    )
    assert page.run("window.broken") is None


def test_every_section_is_there(page: Browser) -> None:
    links = page.run("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href'))")
    assert len(links) == 10
    assert page.run(f"{links}.every(link => document.querySelector(link))")
    for selector, expected in (
        ("#signature", "float32[batch, 3, 8, 8]"),
        ("#kernels", "packed_conv"),
        ("#passes", "fold-batch-norm"),
        ("#memory", "At most"),
        ("#weights", "packed"),
        ("#code", "modules/"),
        ("#timeline", "Zoom"),
    ):
        assert expected in text_of(page, selector), selector


def test_stages(browser: Browser, folder: Path) -> None:
    browser.open(folder / "staged.html")
    assert browser.run("document.querySelectorAll('#stages .card').length") == 2
    assert "near → far" in text_of(browser, "#stages")
    assert browser.run("document.querySelectorAll('#memory svg').length") == 2


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_can_be_read(browser: Browser, folder: Path, width: int, dark: bool) -> None:
    browser.open(folder / "described.html", width=width, dark=dark)
    open_all(browser)
    assert browser.run("document.documentElement.scrollWidth") <= width
    # Every text that can be seen differs enough from what is behind it (WCAG 2, 4.5:1).
    assert browser.run(_CONTRAST) == []


_CONTRAST = """
(() => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c / 255 <= .03928 ? c / 255 / 12.92 : ((c / 255 + .055) / 1.055) ** 2.4);
  const light = (color) => {
    const [r, g, b] = channels(color).map(linear);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = getComputedStyle(element).backgroundColor, found = channels(color);
      if (found.length < 4 || found[3] > 0) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const hasText = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const poor = new Set();
  let seen = 0;
  for (const element of document.querySelectorAll('body *')) {
    if (!element.getClientRects().length || !hasText(element) || element.matches('svg *, option, .skip')) continue;
    seen += 1;
    const [a, b] = [light(getComputedStyle(element).color), light(behind(element))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) poor.add(element.tagName + '.' + element.className);
  }
  return seen > 100 ? [...poor] : ['too few texts'];
})()
"""


def test_the_schemes_differ(browser: Browser, folder: Path) -> None:
    found = []
    for dark in (False, True):
        browser.open(folder / "described.html", dark=dark)
        found.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert found == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]


def test_by_keyboard(page: Browser) -> None:
    page.press("Tab")
    assert page.run(f"{FOCUSED}.className") == "skip"
    assert page.run(f"{FOCUSED}.getBoundingClientRect().left") >= 0
    page.press("Enter")
    page.press("Tab")
    assert page.run(f"document.querySelector('main').contains({FOCUSED})")
    # What has the focus can be seen.
    assert page.run(f"getComputedStyle({FOCUSED}).outlineStyle") == "solid"
    # Tables sort.
    page.run("document.querySelector('#kernels th:nth-child(3) button').focus()")
    page.press("Enter")
    assert page.run(f"{FOCUSED}.closest('th').getAttribute('aria-sort')") == "descending"
    times = "[...document.querySelectorAll('#kernels tbody tr')].map(row => row.children[1].innerText)"
    assert page.run(times)[0] == "packed_conv"
    page.press(" ")
    assert page.run(f"{FOCUSED}.closest('th').getAttribute('aria-sort')") == "ascending"
    assert page.run(times)[-1] == "packed_conv"
    # Modules open and close.
    page.run("[...document.querySelectorAll('#graph summary')].find(s => s.innerText.startsWith('head')).focus()")
    assert page.run(f"{FOCUSED}.parentElement.open") is False
    page.press("Enter")
    assert page.run(f"{FOCUSED}.parentElement.open") is True
    settle(page)
    assert "aten.linear" in str(page.run(f"{FOCUSED}.parentElement.innerText"))


def test_tab_reaches_everything_that_acts(page: Browser) -> None:
    open_all(page)
    acting = "a[href], button, input, select, summary"
    count = page.run(f"[...document.querySelectorAll({acting!r})].filter(e => e.getClientRects().length).length")
    page.run("window.reached = new Set()")
    for _ in range(count + 200):
        page.press("Tab")
        page.run(f"reached.add({FOCUSED})")
        if page.run(f"{FOCUSED} === document.body"):
            break
    missed = page.run(
        f"[...document.querySelectorAll({acting!r})].filter(e => e.getClientRects().length && !reached.has(e))"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert missed == []
    unnamed = page.run(
        "[...document.querySelectorAll('input, select')].filter(e => !e.labels.length || !e.labels[0].innerText)"
        ".map(e => e.outerHTML)"
    )
    assert unnamed == []


def test_the_search(page: Browser) -> None:
    page.run("document.querySelector('#graph input[type=search]').focus()")
    page.type("aten.linear head")
    settle(page)
    rows = page.run(
        "[...document.querySelectorAll('#graph .scroll:not(.hidden) tbody tr')].filter(r => r.getClientRects().length)"
        ".map(row => row.children[0].innerText)"
    )
    assert rows == ["linear", "linear_1"]
    assert text_of(page, "#graph [role=status]").startswith("2 values of ")


def test_links_lead_to_the_value(page: Browser) -> None:
    page.run("[...document.querySelectorAll('#kernels button.link')].find(b => b.innerText === 'linear_1').focus()")
    page.press("Enter")
    assert page.run(f"{FOCUSED}.tagName") == "TR"
    assert page.run(f"{FOCUSED}.children[0].innerText") == "linear_1"
    assert page.run(f"{FOCUSED}.getBoundingClientRect().top") < 900


def test_the_timeline_moves_with_the_arrow_keys(page: Browser) -> None:
    page.run("document.querySelector('.timeline').focus()")
    for _ in range(3):
        page.press("ArrowRight")
    assert text_of(page, "#timeline .readout").startswith("kernel 1, packed_conv: ")
    page.press("ArrowLeft")
    assert text_of(page, "#timeline .readout").startswith("kernel 0, to_layout: ")


def test_the_memory_follows_the_slider(page: Browser) -> None:
    page.run("{ const s = document.querySelector('#memory input'); s.value = 0; s.focus() }")
    page.press("ArrowRight")
    assert "kernel 1, packed_conv" in text_of(page, "#memory .readout")


def test_large_archives_open_fast(browser: Browser, described_archives: Path, tmp_path: Path) -> None:
    """20,000 values, 8,000 kernels and blocks, 3,000 constants."""
    with ArchiveReader(described_archives / "staged.aotpack") as reader:
        data: dict[str, Any] = report_data(reader)
    variant = data["entries"][0]["variants"][0]
    variant["nodes"] = [
        [
            f"value_{i}",
            "call",
            "aten.add",
            f"layers.{i // 100}.part{i % 7}",
            "[batch, 768]",
            "float32",
            "cpu",
            0,
            [max(0, i - 1), max(0, i - 50)],
        ]
        for i in range(20_000)
    ]
    step = variant["implementations"][0]["steps"][0]
    step["kernels"] = [[f"cpp_fused_{i}", ["aten.add"], [2 * i, 2 * i + 1]] for i in range(8_000)]
    step["blocks"] = [[f"buf{i}", 4096 + i, i, min(7_999, i + 20), False] for i in range(8_000)]
    data["constants"] = [{**data["constants"][0], "name": f"constant_{i}"} for i in range(3_000)]
    path = tmp_path / "large.html"
    path.write_text(render(data))
    browser.events.clear()
    assert browser.open(path) < 10
    assert browser.errors() == []
    # Rows come on demand.
    assert browser.run("document.querySelectorAll('tr').length") < 2_000
    browser.run("document.querySelector('#kernels .more button').click()")
    assert browser.run("document.querySelectorAll('#kernels tbody tr').length") == 1_200
    # A link leads to a row that is not there yet, in a module that is not open.
    assert browser.run("document.querySelector('#kernels tbody tr:last-child button.link').click()") is None
    assert browser.run(f"{FOCUSED}.children[0].innerText") == "value_2398"
