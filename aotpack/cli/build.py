"""`aotpack build`: a model becomes an archive. The only command that needs torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from aotpack.cli.common import AsJson, reports_errors


@reports_errors
def build(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="model.py, package.module:function, or model.pt2")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The archive to write.")],
    name: Annotated[
        str | None, typer.Option("--name", help="The model's name in the archive; by default the source's.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="TARGET", help="What to compile for, again for more; by default this machine."
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="INPUT.AXIS=NAME[:MIN..MAX][%K]",
            help="A size that varies from call to call, again for more; see below.",
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="DIM=SIZE[,DIM=SIZE…]",
            help="Code of its own for calls of this size, again for more; `general` for all others. Without `general`, "
            "calls that fit no variant are refused.",
        ),
    ] = None,
    select: Annotated[
        str,
        typer.Option(
            "--select",
            metavar="ORDER",
            help="What a call takes that fits several variants: the first as `declared`, or the `tightest`.",
        ),
    ] = "declared",
    goldens: Annotated[
        bool, typer.Option("--goldens/--no-goldens", help="Keep the example call, for `aotpack verify`.")
    ] = True,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Run the example call in the finished archive, and compare.")
    ] = True,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="Compiler processes at a time.")
    ] = None,
    weights: Annotated[
        list[Path] | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="A .safetensors file with the model's weights (again for more, or an index.json): the model is made "
            "without them, and they are read while the archive is packed.",
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="OPERATOR=FILE[:FUNCTION]",
            help="The C++ kernel of a custom operator, again for more. By default its function has that name too; "
            "what the source registers itself goes before.",
        ),
    ] = None,
    updatable: Annotated[
        bool,
        typer.Option(
            "--updatable/--frozen",
            help="Keep the original weights and how others are made of them, so that a running model takes new ones.",
        ),
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", metavar="PASS", help="Leave out a pass, again for more; `all` for every one."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what each pass changed, layer by layer.")] = False,
    as_json: AsJson = False,
) -> None:
    """Builds an archive from a PyTorch model. Needs the extra `build`: `pip install 'aotpack[build]'`.

    **SOURCE** is one of

    * a file `model.py` with the functions `model()`, `example_inputs()` (a tuple of positional or a dict of keyword
      arguments) and, if sizes vary, `dynamic_shapes()` (as for `torch.export.export`); for a model that is called in
      several ways, `entries()` in place of the last two: a dict from the entry's name to a dict with any of `args`,
      `kwargs`, `dynamic_shapes`, `method` (by default `forward`), `mode`, `variants` and `select`. All entries share
      the weights, and the buffers that one of them writes to;
    * `package.module:function`, where the function returns the model, or `(model, args)`, or
      `(model, args, dynamic_shapes)`;
    * a `.pt2` file that `torch.export.save` wrote.

    **Sizes that vary** are dims, with names by which errors speak of them.

    * `--dim x.0=batch:1..64`: axis 0 of the input `x`; either bound may be left out, or both: `--dim x.0=batch`.
    * `--dim mask.0=batch`: the same dim in another place.
    * `--dim x.1=length:..512%8`: multiples of 8 alone.
    * `--dim y.0=2*batch+1`: a size that depends on a dim.
    * `--dim batch.ids.0=n`: the entry `ids` of the dict (list, dataclass) `batch`.
    * `--dim n=n:0..100`: the argument `n` is an int that each call passes; `--dim f=dynamic`: any int, float or bool.
    * `--dim auto`: every size that can vary does. What could not is said after the build.

    **Examples**

        aotpack build model.py -o model.aotpack
        aotpack build model.py -o model.aotpack --dim x.0=batch:1..64
        aotpack build model.py -o model.aotpack --variant batch=1 --variant batch=8 --variant general
        aotpack build mypackage.models:resnet -o resnet.aotpack -t x86-64-v3 -t x86-64-v4
        aotpack build exported.pt2 -o model.aotpack --json
        aotpack build model.py -o model.aotpack --updatable --explain
        aotpack build large.py -o large.aotpack --weights model.safetensors.index.json
        aotpack build model.py -o model.aotpack --kernel vision::nms=nms.cpp
        aotpack build model.py -o slow.aotpack --without fold-batch-norm --without pack-conv

    Phases and their times go to stderr. The last, `check`, runs the example call in the archive and compares the result
    with what the model returned; where they differ nothing is written.
    An old archive stays in place until the new one is complete.
    """
    from aotpack.archive import check_output
    from aotpack.cli.dims import parse_dims
    from aotpack.cli.kernels import kernels_registered, parse_kernels
    from aotpack.cli.source import as_script, check_source
    from aotpack.cli.variants import parse_variants
    from aotpack.errors import BuildError
    from aotpack.targets import Target

    options = parse_dims(dim)
    kernels = parse_kernels(kernel)
    variants = parse_variants(variant)
    if select not in ("declared", "tightest"):
        raise typer.BadParameter(f"{select!r} is neither declared nor tightest", param_hint="'--select'")
    targets = [Target.buildable(item).name for item in target or []]
    if dim and source.endswith(".pt2"):
        raise typer.BadParameter("an exported program has its dims already", param_hint="'--dim'")
    if weights and source.endswith(".pt2"):
        raise typer.BadParameter("an exported program has its weights already", param_hint="'--weights'")
    # What is wrong with files is said before torch is imported, and before anything is compiled.
    check_source(source)
    check_output(output)
    for path in (Path(source), *(weights or ())):
        if output.exists() and path.exists() and output.samefile(path):
            raise BuildError(f"the output {output} is what the archive is built from", hint="choose another output")
    _require_torch()

    import contextlib
    import sys

    from aotpack.cli.common import format_bytes, format_seconds, print_json, stderr_console, stdout_console
    from aotpack.cli.notes import notes_of, print_notes, print_unchecked
    from aotpack.cli.passes import print_passes
    from aotpack.cli.progress import Phases
    from aotpack.cli.signals import terminated_in_order
    from aotpack.export import BuildOptions, build_archive

    # What the user's model prints while it is captured must not end up in the JSON.
    with (
        terminated_in_order(),
        Phases(stderr_console()) as phases,
        contextlib.redirect_stdout(sys.stderr),
        as_script(source),
        kernels_registered(kernels),
    ):
        programs, seconds = _capture(source, name, options, weights, variants, select, phases)
        notes = notes_of(programs)
        report = build_archive(
            programs,
            output,
            name=name or programs[0].name,
            targets=targets or None,
            options=BuildOptions(
                check=check,
                goldens=goldens,
                jobs=jobs,
                without=tuple(without or ()),
                updatable=updatable,
                free_source=True,  # nobody can use the model after this
            ),
            progress=phases,
        )
    if as_json:
        result = report.to_dict()
        print_json(result | {"seconds": {"capture": seconds} | dict(result["seconds"]), "notes": notes})
        return
    print_notes(stderr_console(), notes)
    if check:
        print_unchecked(stderr_console(), report.check.skipped, report.check.open)
    total = seconds + sum(report.seconds.values())
    if explain:
        print_passes(stdout_console(), report.to_dict()["passes"])
    stdout_console().print(
        f"{report.path}  {format_bytes(report.size)}  {', '.join(report.targets)}  in {format_seconds(total)}",
        soft_wrap=True,
    )


def _require_torch() -> None:
    import importlib.util

    from aotpack.errors import BuildError

    if importlib.util.find_spec("torch") is None:
        raise BuildError("building needs torch, which is not installed", hint="pip install 'aotpack[build]'")


def _capture(
    source: str,
    name: str | None,
    options: list[Any],
    weights: list[Path] | None,
    variants: list[dict[str, int]] | None,
    select: str,
    phases: Any,
) -> tuple[list[Any], float]:
    """The programs of all entries, and the seconds that their capture took."""
    import time

    from aotpack.cli.dims import dynamic_shapes
    from aotpack.cli.source import load_source

    began = time.perf_counter()
    phases("capture", None, source)
    from aotpack.export import aot_export, load_exported, without_weights

    found = load_source(source, around=without_weights() if weights else None)
    given: dict[str, Any] = {"name": name or found.name}
    if weights:
        given["weights"] = weights[0] if len(weights) == 1 else weights
    chosen: dict[str, Any] = {"variants": variants, "select": select}

    if found.exported is not None:
        programs = [load_exported(found.exported, **given, **chosen)]
    elif found.entries is not None:
        for option, value in (("--dim", options), ("--variant", variants)):
            if value:
                raise typer.BadParameter("the source says it for each of its entries()", param_hint=f"'{option}'")
        programs = []
        for entry, how in found.entries.items():
            phases("capture", None, f"{source} {entry}")
            programs.append(aot_export(found.model, entry=entry, **{"args": (), **how}, **given))
    else:
        shapes = found.dynamic_shapes
        if options:
            if shapes is not None:
                raise typer.BadParameter("the source has dynamic_shapes() already", param_hint="'--dim'")
            shapes = dynamic_shapes(options, found.model, found.args, found.kwargs)
        programs = [aot_export(found.model, found.args, found.kwargs, dynamic_shapes=shapes, **given, **chosen)]
    seconds = time.perf_counter() - began
    phases("capture", seconds, source)
    return programs, seconds
