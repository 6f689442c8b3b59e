"""Common parts of the commands: options, error reporting and output.

Data goes to stdout, everything else to stderr. With `--json` stdout is exactly one JSON object, also on failure.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from aotpack.cli.signals import Terminated
from aotpack.errors import AotpackError, BuildError, InternalError, UnsupportedOperatorError

if TYPE_CHECKING:
    from rich.console import Console

Args = ParamSpec("Args")

ArchivePath = Annotated[Path, typer.Argument(metavar="ARCHIVE", help="An archive created by `aotpack build`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, metavar="N", help="Number of threads per call. Default: one per core.")
]
EntryName = Annotated[
    str | None, typer.Option("--entry", metavar="NAME", help="Entry to run. Default: `forward`, or the first entry.")
]


def reports_errors(command: Callable[Args, None]) -> Callable[Args, None]:
    """Ends a command that fails with exit code 1, the message on stderr and `hint: …` below it.

    A command whose output nothing reads ends quietly with exit code 141, as programs that SIGPIPE ends do.
    """

    @functools.wraps(command)
    def wrapper(*args: Args.args, **kwargs: Args.kwargs) -> None:
        try:
            command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError as error:
            if not _reader_gone():
                _report(error, as_json=bool(kwargs.get("as_json")))
                raise typer.Exit(1) from None
            _discard_output()
            raise typer.Exit(128 + signal.SIGPIPE) from None
        except (AotpackError, OSError, MemoryError) as error:
            _report(error, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(1) from None
        except SystemExit as error:
            # Raised by the user's source or its imports; commands themselves end with typer.Exit.
            ended = BuildError(
                f"the model's code called exit({error.code!r})",
                hint="remove the call to exit() or sys.exit()",
            )
            _report(ended, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(1) from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] in ("click", "typer"):
                raise  # usage errors and the exit of a command, which typer handles
            _report(_unforeseen(error), as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None
        except Terminated:
            print("terminated", file=sys.stderr)
            raise typer.Exit(143) from None

    return wrapper


def _reader_gone() -> bool:
    """Whether stdout or stderr is a pipe whose reader is gone, as in `aotpack inspect ARCHIVE | head -1`."""
    polled = select.poll()
    for descriptor in (1, 2):
        polled.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in polled.poll(0))


def _discard_output() -> None:
    """Sends what is still buffered nowhere: Python flushes it at exit, and reports where that fails."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream, descriptor in ((sys.stdout, 1), (sys.stderr, 2)):
        os.dup2(nowhere, descriptor)
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os.close(nowhere)


def _unforeseen(error: Exception) -> InternalError:
    wrapped = InternalError(
        f"the command failed with an unexpected error: {type(error).__name__}: {error}",
        hint="this is a bug in aotpack; please report it with the traceback, which AOTPACK_TRACEBACK=1 prints",
    )
    wrapped.__cause__ = error
    return wrapped


def _report(error: BaseException, *, as_json: bool) -> None:
    if os.environ.get("AOTPACK_TRACEBACK", "") not in ("", "0"):
        import traceback

        sys.stderr.write("".join(traceback.format_exception(error)))
    message = str(error) or type(error).__name__
    hint = getattr(error, "hint", None)
    if as_json:
        described: dict[str, Any] = {"type": type(error).__name__, "message": message, "hint": hint}
        if isinstance(error, UnsupportedOperatorError):
            described["operators"] = [dict(zip(("operator", "module", "line"), use, strict=True)) for use in error.uses]
        print_json({"error": described})
    console = stderr_console()
    console.print("error:", style="bold red", end=" ")
    console.print(message, soft_wrap=True)
    if hint:
        console.print("hint:", style="bold cyan", end=" ")
        console.print(hint, soft_wrap=True)


def print_json(value: dict[str, Any]) -> None:
    """Prints the JSON object of a command on stdout, in ASCII. Numbers without a JSON form (inf, nan) are null."""
    typer.echo(json.dumps(_finite(value), indent=2))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def stdout_console() -> Console:
    return _console(stderr=False)


def stderr_console() -> Console:
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    from aotpack.cli.terminal import SafeConsole

    console = SafeConsole(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # Output to a file or pipe: do not cut tables at the width of a terminal.
        console.width = 160
    return console


def parse_sizes(options: list[str] | None) -> dict[str, int]:
    """`--dim batch=8` → {"batch": 8}."""
    sizes = {}
    for option in options or []:
        name, equals, text = option.partition("=")
        if not (name and equals and text.isdigit()):
            raise typer.BadParameter(f"{option!r} is not NAME=SIZE, such as batch=8", param_hint="'--dim'")
        sizes[name] = int(text)
    return sizes


def format_bytes(count: int) -> str:
    """1536 → "1.5 KB"; units of 1024."""
    size = float(count)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1024 or unit == "GB":
            break
        size /= 1024
    return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """0.0000042 → "4.20 µs"."""
    for factor, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * factor < 1000:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds:.2f} s"
