"""What `aotpack build` was asked for, and carrying it out: capture, build, report."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from aotpack.cli.variants import VariantOption
    from aotpack.export import BuildReport


@dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """The options of one build, parsed; see `aotpack.cli.build.build` for their meaning.

    Raises:
        typer.BadParameter: options that exclude each other, or an unknown order of variants.
    """

    source: str
    output: Path
    name: str | None
    dims: list[Any]
    sizes: dict[str, int]
    constants: dict[str, Any]
    kernels: list[Any]
    variants: list[VariantOption] | None
    select: str
    targets: tuple[str, ...]
    weights: tuple[Path, ...]
    without: tuple[str, ...]
    check: bool
    goldens: bool
    description: bool
    profile: bool
    updatable: bool
    code_only: bool
    host_steps: bool
    providers: tuple[str, ...]
    float32_products: str
    regions: str
    sources: bool
    jobs: int | None
    opt_level: int | None
    tune: str = "none"

    def __post_init__(self) -> None:
        if self.select not in ("declared", "tightest"):
            raise typer.BadParameter(f"{self.select!r} is invalid: use declared or tightest", param_hint="'--select'")
        if self.code_only and self.weights:
            raise typer.BadParameter("a code-only archive contains no weights", param_hint="'--weights'")
        if self.code_only and self.tune != "none":
            text = "a code-only archive cannot run: tune what `aotpack pack` makes of it, with `aotpack tune`"
            raise typer.BadParameter(text, param_hint="'--tune'")
        if self.source.endswith(".onnx"):
            if self.weights:
                raise typer.BadParameter("the ONNX model already contains its weights", param_hint="'--weights'")
        elif self.sizes or self.constants:
            option = "--size" if self.sizes else "--constant"
            raise typer.BadParameter("the option is for .onnx files alone", param_hint=f"'{option}'")
        if self.source.endswith(".pt2"):
            if self.dims:
                raise typer.BadParameter("the exported program already defines its dims", param_hint="'--dim'")
            if self.weights:
                raise typer.BadParameter("the exported program already contains its weights", param_hint="'--weights'")

    def check_files(self) -> None:
        """Checks the source and the output before torch is imported.

        Raises:
            BuildError: the source is not usable, or the output is one of the inputs.
            OSError: the output cannot be written.
        """
        from aotpack.archive import check_output
        from aotpack.cli.source import check_source
        from aotpack.errors import BuildError

        check_source(self.source)
        check_output(self.output)
        for path in (Path(self.source), *self.weights):
            if self.output.exists() and path.exists() and self.output.samefile(path):
                raise BuildError(
                    f"the output {self.output} is also an input of the build", hint="choose another output file"
                )


@dataclass(frozen=True)
class BuildResult:
    """What a build made, for the terminal or for machines.

    Attributes:
        report: of the build.
        notes: of the capture, by entry.
        seconds: how long the capture took.
        checked: whether the check was asked for.
        code_only: whether the archive has no weights.
        tuning: what tuning did (`tune_built`); None: it was not asked for.
    """

    report: BuildReport
    notes: Any
    seconds: float
    checked: bool
    code_only: bool = False
    tuning: dict[str, Any] | None = None

    def print_json(self) -> None:
        """Prints one JSON object on stdout."""
        from aotpack.cli.common import print_json

        result = self.report.to_dict()
        seconds = {"capture": self.seconds} | dict(result["seconds"])
        print_json(result | {"seconds": seconds, "notes": self.notes, "tuning": self.tuning})

    def print_text(self, *, explain: bool) -> None:
        """Prints the notes on stderr and the archive on stdout; `explain` adds what each pass changed."""
        from aotpack.cli.build_tuning import print_algorithms, print_tuning
        from aotpack.cli.common import format_bytes, format_seconds, stderr_console, stdout_console
        from aotpack.cli.notes import print_choices, print_code_only, print_host_steps, print_notes, print_unchecked
        from aotpack.cli.passes import print_passes

        report = self.report
        print_notes(stderr_console(), self.notes)
        print_host_steps(stderr_console(), report.host_steps)
        print_choices(stderr_console(), report.triton_configs)
        if self.checked:
            print_unchecked(stderr_console(), report.check.skipped, report.check.open)
        if self.tuning is not None:
            print_algorithms(stderr_console(), report.algorithms)
            print_tuning(stderr_console(), self.tuning)
        if explain:
            print_passes(stdout_console(), report.to_dict()["passes"])
        total = format_seconds(self.seconds + sum(report.seconds.values()))
        if self.code_only:
            print_code_only(stderr_console(), report.path)
        stdout_console().print(
            f"{report.path}  {format_bytes(report.size)}  {', '.join(report.targets)}  in {total}", soft_wrap=True
        )


def execute(request: BuildRequest) -> BuildResult:
    """Captures the source and builds the archive. Imports torch.

    Raises:
        AotpackError: the capture or the build failed.
        OSError: the output cannot be written.
    """
    from aotpack.cli.build_tuning import algorithm_options, tune_built
    from aotpack.cli.common import stderr_console
    from aotpack.cli.kernels import kernels_registered
    from aotpack.cli.notes import notes_of
    from aotpack.cli.progress import Phases
    from aotpack.cli.signals import terminated_in_order
    from aotpack.cli.source import as_script

    # sympy reads this when it is imported. Builds with dynamic shapes ask it for more than its default of 1000 results.
    os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")
    # Outside of `as_script`, which puts the folder of the source in front of others.
    from aotpack.export import BuildOptions, build_archive

    # Collections need not visit the modules of torch, which stay. Tracing makes many objects that live to its end.
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    # Output that the user's model prints during capture must not end up in the JSON.
    with (
        terminated_in_order() as interruption,
        Phases(stderr_console(), interruption.check) as phases,
        contextlib.redirect_stdout(sys.stderr),
        as_script(request.source),
        kernels_registered(request.kernels),
    ):
        programs, name, passes, seconds = _capture(request, phases)
        notes = notes_of(programs)
        report = build_archive(
            programs,
            request.output,
            name=request.name or name,
            targets=request.targets or None,
            passes=passes,
            options=BuildOptions(
                check=request.check,
                goldens=request.goldens,
                description=request.description,
                profile=request.profile,
                jobs=request.jobs,
                opt_level=request.opt_level,
                without=request.without,
                updatable=request.updatable,
                code_only=request.code_only,
                host_steps=request.host_steps,
                providers=request.providers,
                float32_products=request.float32_products,
                regions=request.regions,
                sources=request.sources,
                free_source=True,  # the model is not used afterwards
                **algorithm_options(request.tune, seconds),
            ),
            progress=phases,
        )
        tuning = None
        if request.tune != "none":
            began = time.perf_counter()
            phases("tune", None, request.tune)
            algorithms = report.algorithms.seconds
            others = seconds + sum(report.seconds.values()) - algorithms
            tuning = tune_built(report.path, request.tune, others, algorithms)
            report.seconds["tune"] = time.perf_counter() - began
            phases("tune", report.seconds["tune"], request.tune)
            report = dataclasses.replace(report, size=report.path.stat().st_size)
    return BuildResult(report, notes, seconds, request.check or request.code_only, request.code_only, tuning)


def _captured_onnx(request: BuildRequest, path: Path, variants: Any) -> Any:
    from aotpack.cli.dims import dynamic_shapes
    from aotpack.export.onnx.importer import capture_onnx, load_onnx

    source = load_onnx(path, sizes=request.sizes, constants=request.constants)
    shapes = dynamic_shapes(request.dims, source.module, source.args, None) if request.dims else None
    return capture_onnx(source, dynamic_shapes=shapes, variants=variants)


def _capture(request: BuildRequest, phases: Any) -> tuple[list[Any], str, tuple[Any, ...], float]:
    """The programs of all entries, the name of the source, its passes, and the duration of the capture in seconds."""
    from aotpack.cli.dims import dynamic_shapes
    from aotpack.cli.source import load_source

    began = time.perf_counter()
    phases("capture", None, request.source)
    from aotpack.export import Variant, Variants, aot_export, load_exported, without_weights

    found = load_source(request.source, around=without_weights() if request.weights or request.code_only else None)
    weights = request.weights[0] if len(request.weights) == 1 else list(request.weights) or None
    wanted = [Variant(each.sizes, each.same) for each in request.variants or ()]
    variants = Variants(wanted, request.select) if wanted else None

    if found.exported is not None:
        programs = [load_exported(found.exported, variants=variants)]
    elif found.onnx is not None:
        programs = [_captured_onnx(request, found.onnx, variants)]
    elif found.entries is not None:
        for option, value in (("--dim", request.dims), ("--variant", request.variants)):
            if value:
                raise typer.BadParameter("the source defines it for each of its entries()", param_hint=f"'{option}'")
        programs = []
        for entry, how in found.entries.items():
            phases("capture", None, f"{request.source} {entry}")
            programs.append(aot_export(found.model, entry=entry, weights=weights, **{"args": (), **how}))
    else:
        shapes = found.dynamic_shapes
        if request.dims:
            if shapes is not None:
                raise typer.BadParameter("the source already defines dynamic_shapes()", param_hint="'--dim'")
            if found.training is not None:
                text = "a source with optimizer() defines its dims by dynamic_shapes(), with those of the loss"
                raise typer.BadParameter(text, param_hint="'--dim'")
            shapes = dynamic_shapes(request.dims, found.model, found.args, found.kwargs)
        example = (found.model, found.args, found.kwargs)
        how = found.training or {}
        programs = [aot_export(*example, dynamic_shapes=shapes, variants=variants, weights=weights, **how)]
    seconds = time.perf_counter() - began
    phases("capture", seconds, request.source)
    return programs, found.name, found.passes, seconds
