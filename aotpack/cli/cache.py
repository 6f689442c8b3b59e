"""`aotpack cache`: shows and prunes the build cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from aotpack.cli.common import AsJson, reports_errors

if TYPE_CHECKING:
    from aotpack.building.usage import Removed

app = typer.Typer(
    name="cache",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Shows or prunes the build cache.\n\n"
    "The cache stores compiled kernels and headers, so that a build compiles only what has changed. Its directory is "
    "`$AOTPACK_CACHE_DIR`, by default `~/.cache/aotpack`, with a private part for each user. After a build, the least "
    "recently used entries above `$AOTPACK_CACHE_SIZE` are removed (default: 5 GB; 0: no limit). Removing entries is "
    "always safe: the next build creates them again.",
)


@app.command()
@reports_errors
def info(as_json: AsJson = False) -> None:
    """Shows the location, size and limit of the cache.

    **Examples**

        aotpack cache info
        aotpack cache info --json
    """
    from aotpack.building.folders import default_folder, own_part
    from aotpack.building.usage import entries, leftovers, limit_from_environment
    from aotpack.cli.common import format_bytes, print_json, stdout_console

    root = default_folder()
    kinds: dict[str, dict[str, int]] = {}
    for entry in [*entries(root), *leftovers(root)]:
        kind = kinds.setdefault(entry.kind, {"files": 0, "bytes": 0})
        kind["files"] += 1
        kind["bytes"] += entry.size
    total = {name: sum(kind[name] for kind in kinds.values()) for name in ("files", "bytes")}
    limit = limit_from_environment()
    if as_json:
        print_json({"folder": own_part(root), "limit": limit, **total, "kinds": kinds})
        return
    console = stdout_console()
    console.print(f"folder  {own_part(root)}", soft_wrap=True)
    console.print(f"limit   {format_bytes(limit) if limit else 'none'}")
    console.print(f"size    {format_bytes(total['bytes'])} in {total['files']} entries")
    for name, kind in sorted(kinds.items(), key=lambda item: -item[1]["bytes"]):
        console.print(f"  {name:<22}{kind['files']:>6}  {format_bytes(kind['bytes']):>10}")


@app.command()
@reports_errors
def prune(
    size: Annotated[
        str | None,
        typer.Option("--size", metavar="SIZE", help="Maximum size to keep, such as 500M. Default: the limit."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Removes the least recently used entries, and files left by earlier versions and killed builds.

    **Examples**

        aotpack cache prune
        aotpack cache prune --size 500M
    """
    from aotpack.building.folders import open_folder
    from aotpack.building.temporary import sweep
    from aotpack.building.usage import limit_from_environment, parse_size, remove_leftovers, trim

    try:
        limit = limit_from_environment() if size is None else parse_size(size)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--size'") from None
    root, own = open_folder()
    sweep(own / "tmp")
    sweep()
    removed = remove_leftovers(root)
    # Unlike in the environment variable, 0 is a size here.
    removed += trim(root, max(limit, 1) if size is not None else limit)
    _report(removed, as_json=as_json)


@app.command()
@reports_errors
def clear(as_json: AsJson = False) -> None:
    """Removes all entries. Running builds are not affected.

    **Examples**

        aotpack cache clear
    """
    from aotpack.building.folders import open_folder
    from aotpack.building.usage import clear as clear_cache

    _report(clear_cache(open_folder()[0]), as_json=as_json)


def _report(removed: Removed, *, as_json: bool) -> None:
    from aotpack.cli.common import format_bytes, print_json, stdout_console

    if as_json:
        about: dict[str, Any] = {"removed": {"files": removed.files, "bytes": removed.bytes}}
        print_json(about)
    else:
        stdout_console().print(f"removed {removed.files} entries, {format_bytes(removed.bytes)}")
