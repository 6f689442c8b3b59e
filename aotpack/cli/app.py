"""The program `aotpack`: registers the commands."""

from __future__ import annotations

from typing import Annotated

import typer

from aotpack.cli.bench import bench
from aotpack.cli.build import build
from aotpack.cli.cache import app as cache
from aotpack.cli.doctor import doctor
from aotpack.cli.export_weights import export_weights
from aotpack.cli.inspect import inspect
from aotpack.cli.pack import pack
from aotpack.cli.run import run
from aotpack.cli.split import split
from aotpack.cli.train import train
from aotpack.cli.tune import tune
from aotpack.cli.unpack import unpack
from aotpack.cli.verify import verify

app = typer.Typer(
    name="aotpack",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Compiles a PyTorch model into one file that runs without PyTorch.\n\n"
    "`aotpack build` creates an archive. The other commands and `aotpack.load` use archives without torch.\n\n"
    "Exit codes: 0 success, 1 failure, 2 usage error. With `--json` a command prints exactly one JSON object.",
)

for _command in (build, pack, unpack, export_weights, train, split, tune, run, bench, inspect, verify, doctor):
    app.command(name=_command.__name__.replace("_", "-"), no_args_is_help=_command is not doctor)(_command)
app.add_typer(cache)


def _version(show: bool) -> None:
    if show:
        from aotpack._version import __version__

        typer.echo(f"aotpack {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The entry point of the program."""
    app()


if __name__ == "__main__":
    main()
