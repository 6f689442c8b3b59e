"""Archives whose names steer terminals or look like markup, and paths that are no files: the commands stay readable."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from aotpack.archive import ArchiveReader, FileSource, Implementation, Kernel, Variant, write_archive
from aotpack.archive.report import parse_report
from aotpack.cli.app import app
from aotpack.cli.terminal import SafeConsole, printable
from aotpack.errors import MalformedArchiveError

Archive = Callable[[str], Path]

_STEERING = "\x1b]0;owned\x07\x1b[31m\x9b2J\u202egnp.exe\u2066\r\x08\x7f"
_MARKUP = "x[/red] [bold]y[/] :smile: [link=http://a.b]z[/link]"


def invoke(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def _with_kernel(variant: Variant, kernel: Kernel) -> Variant:
    """The variant with this kernel in all its modules."""
    from dataclasses import replace

    def changed(implementation: Implementation) -> Implementation:
        steps = (replace(step, module=replace(step.module, kernels=(kernel,))) for step in implementation.steps)
        return replace(implementation, steps=tuple(steps))

    return replace(variant, implementations=tuple(map(changed, variant.implementations)))


def _rewritten(source: Path, path: Path, text: str, report: bytes | None = None) -> Path:
    """The archive with `text` in every name that the format leaves free, and with a report."""
    from dataclasses import replace

    with ArchiveReader(source) as reader:
        manifest = reader.manifest
        files = [FileSource.from_bytes(file.path, reader.read(file.path)) for file in manifest.files]
    if report is not None:
        files.append(FileSource.from_bytes("reports/passes.json", report))
    entries = tuple(
        replace(
            entry,
            inputs=tuple(replace(value, name=text) for value in entry.inputs),
            variants=tuple(_with_kernel(variant, _kernel(text)) for variant in entry.variants),
        )
        for entry in manifest.entries
    )
    manifest = replace(
        manifest,
        name=text,
        producer={**manifest.producer, "host": text},
        entries=entries,
        constants=tuple(replace(constant, name=text) for constant in manifest.constants[:1]) + manifest.constants[1:],
        report=manifest.report if report is None else len(files) - 1,
    )
    write_archive(path, manifest, files)
    return path


def _kernel(text: str) -> Any:
    from aotpack.archive import Kernel

    return Kernel(text, (text,))


def _report(text: str) -> bytes:
    passes = [{"name": text, "summary": text, "changes": [{"layer": text, "note": text}]}]
    return json.dumps({"entries": {text: {text: passes}}}).encode()


def _assert_harmless(text: str) -> None:
    assert all(c == "\n" or c.isprintable() for c in text), repr(text)


@pytest.mark.parametrize("text", [_STEERING, _MARKUP, "\ud800half", "a\nb"])
def test_names_are_text_and_nothing_else(archive: Archive, tmp_path: Path, text: str) -> None:
    if text.startswith("\ud800"):
        # JSON cannot have it, so archives cannot; errors that quote a file name can.
        assert printable(text) == "\\ud800half"
        return
    path = _rewritten(archive("affine"), tmp_path / "odd.aotpack", text, _report(text))
    for args in (
        ("inspect", path, "--kernels", "--weights", "--passes"),
        ("inspect", path, "--json"),
        ("run", path, "--random"),
        ("run", path, "--random", "--json"),
        ("run", path, "--random", "--entry", text),
        ("bench", path, "-n", 1, "--warmup", 0),
        ("verify", path),
        ("inspect", tmp_path / text.replace("/", "")),
    ):
        result = invoke(*args)
        assert "Traceback" not in result.output
        assert not isinstance(result.exception, Exception) or isinstance(result.exception, SystemExit), result.exception
        _assert_harmless(result.stdout)
        _assert_harmless(result.stderr)
    shown = invoke("inspect", path, "--kernels", "--weights", "--passes")
    assert shown.exit_code == 0
    if text == _MARKUP:
        assert shown.stdout.count(text) >= 5
    value = json.loads(invoke("inspect", path, "--json").stdout)
    assert value["name"] == text


def test_every_character() -> None:
    for code in (*range(0x300), 0x200B, 0x200F, 0x2028, 0x202E, 0x2069, 0xFEFF, 0xE0001, 0xD800):
        shown = printable(chr(code))
        assert shown in ("\n", "\t") or shown.isprintable() or code in (0xA0,), hex(code)
    assert printable("größe 大小 [batch]") == "größe 大小 [batch]"
    assert printable("\x1b[0m\x9b\u202e") == "\\x1b[0m\\x9b\\u202e"


def test_the_console_makes_everything_safe() -> None:
    from rich.table import Table
    from rich.text import Text

    file = io.StringIO()
    console = SafeConsole(file=file, force_terminal=True, color_system=None, width=200)
    table = Table("column")
    table.add_row(Text(_STEERING))
    table.add_row(_STEERING)
    console.print(table)
    console.print(_STEERING, style="bold", soft_wrap=True)
    console.print(Text.assemble((_STEERING, "red")))
    text = file.getvalue()
    assert "\\x1b]0;owned" in text
    for wrong in ("\x1b]", "\x1b[31", "\x9b", "\u202e", "\x07", "\x08", "\r", "\x7f"):
        assert wrong not in text, repr(wrong)


@pytest.mark.parametrize(
    "report",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"\xff",
        b"",
        b"[]",
        b"3",
        b"{}",
        b'{"entries": 3}',
        b'{"entries": {"forward": []}}',
        b'{"entries": {"forward": {"default": {}}}}',
        b'{"entries": {"forward": {"default": [3]}}}',
        b'{"entries": {"forward": {"default": [{"name": "a"}]}}}',
        b'{"entries": {"forward": {"default": [{"name": "a", "summary": 3, "changes": []}]}}}',
        b'{"entries": {"forward": {"default": [{"name": "a", "summary": "s", "changes": [{"layer": "l"}]}]}}}',
    ],
)
def test_malformed_reports(archive: Archive, tmp_path: Path, report: bytes) -> None:
    with pytest.raises(MalformedArchiveError, match="report"):
        parse_report(report)
    path = _rewritten(archive("affine"), tmp_path / "report.aotpack", "x", report)
    for options in (("--passes",), ("--json",)):
        result = invoke("inspect", path, *options)
        assert result.exit_code == 1
        assert "report" in result.stderr
    assert invoke("inspect", path).exit_code == 0


@pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
def test_what_is_no_regular_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path = Path("/dev/zero")
    commands = [("inspect", path), ("verify", path), ("run", path, "--random"), ("bench", path)]
    for command in commands:
        result = _in_time(command)
        assert result.exit_code == 1
        assert "error:" in result.stderr
        assert "unexpected error" not in result.stderr


def _in_time(command: tuple[object, ...]) -> Result:
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(invoke(*command)), daemon=True)
    thread.start()
    thread.join(60)
    assert results, f"{command[0]} hangs"
    return results[0]


def test_unforeseen_errors_of_a_command(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("nothing [there]")

    monkeypatch.setattr("aotpack.cli.inspect._print_head", fail)
    result = invoke("inspect", archive("affine"))
    assert result.exit_code == 1
    for part in ("error: the command failed", "LookupError: nothing [there]", "hint:", "please report"):
        assert part in result.stderr
    assert "Traceback" not in result.stderr
    monkeypatch.setenv("AOTPACK_TRACEBACK", "1")
    assert "Traceback" in invoke("inspect", archive("affine")).stderr
