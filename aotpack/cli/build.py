"""`aotpack build`: builds an archive from a model. The only command that needs torch."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from aotpack.cli.build_tuning import Tune
from aotpack.cli.common import AsJson, reports_errors


class Regions(StrEnum):
    """The code of a model that is compiled once and called with different weights."""

    OFF = "off"
    MARKED = "marked"
    AUTO = "auto"


class Float32Products(StrEnum):
    """How GPUs multiply float32."""

    TF32X3 = "tf32x3"
    IEEE = "ieee"
    TF32 = "tf32"


class Provider(StrEnum):
    """Libraries that modules for GPUs may call."""

    CUBLASLT = "cublaslt"
    CUDNN = "cudnn"
    CUFFT = "cufft"
    CUSOLVER = "cusolver"


@reports_errors
def build(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="model.py, package.module:function, model.pt2 or model.onnx")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Archive to write.")],
    name: Annotated[
        str | None, typer.Option("--name", help="Name of the model in the archive. Default: the name of the source.")
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            metavar="TARGET",
            help="Target to compile for: x86-64-v2, -v3, -v4, aarch64 (by a cross compiler), cuda-sm_90, …. "
            "Default: this machine. Repeatable.",
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="INPUT.AXIS=NAME[:MIN..MAX][%K]",
            help="A dynamic size or scalar input; see below. Repeatable.",
        ),
    ] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="DIM=SIZE",
            help="The size of a symbolic dim of an .onnx file in the example call. Repeatable.",
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            "--constant",
            metavar="INPUT=VALUE",
            help="The value of an input of an .onnx file, which becomes part of the model: a number or a JSON list. "
            "Repeatable.",
        ),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(
            "--variant",
            metavar="DIM=SIZE[,DIM=SIZE…]",
            help="Compile a variant for calls with these sizes, or with one tensor in several places (`a is b`); "
            "`general` is the variant for all other calls. Without `general`, calls that match no variant are "
            "rejected. Repeatable.",
        ),
    ] = None,
    select: Annotated[
        str,
        typer.Option(
            "--select",
            metavar="ORDER",
            help="The variant for a call that matches several: the first as `declared`, or the `tightest`.",
        ),
    ] = "declared",
    goldens: Annotated[
        bool, typer.Option("--goldens/--no-goldens", help="Store the example call, for `aotpack verify`.")
    ] = True,
    description: Annotated[
        bool,
        typer.Option("--description/--no-description", help="Store what `aotpack inspect --graph` and `--html` show."),
    ] = True,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile", help="Have modules record the times of their kernels, for `aotpack bench --per-kernel`."
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check",
            help="Run the example call in the finished archive and compare the outputs with eager's.",
        ),
    ] = True,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, metavar="N", help="Number of concurrent compiler processes.")
    ] = None,
    opt_level: Annotated[
        int | None,
        typer.Option(
            "--opt-level",
            "-O",
            min=1,
            max=3,
            metavar="N",
            help="Optimization level of generated C++, 1 to 3. Level 1 builds faster, for development; the model may "
            "run slower. Default: $AOTPACK_OPT_LEVEL or 3.",
        ),
    ] = None,
    weights: Annotated[
        list[Path] | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            help="A .safetensors file with the model's weights, or an index.json. The model is created without "
            "weights, which are read while the archive is packed. Repeatable.",
        ),
    ] = None,
    kernel: Annotated[
        list[str] | None,
        typer.Option(
            "--kernel",
            metavar="OPERATOR=FILE[:FUNCTION]",
            help="The C++ kernel of a custom operator. Default function: the operator's name without its namespace. "
            "Kernels that the source registers take precedence. Repeatable.",
        ),
    ] = None,
    updatable: Annotated[
        bool,
        typer.Option(
            "--updatable/--frozen",
            help="Store the original weights and how to derive the others: a running model accepts new weights.",
        ),
    ] = False,
    code_only: Annotated[
        bool,
        typer.Option(
            "--code-only",
            help="Leave the weights out of the archive; `aotpack pack` adds them. The model is created without "
            "weights.",
        ),
    ] = False,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="PASS", help="Disable a graph pass; `all` disables every optional pass. Repeatable."
        ),
    ] = None,
    host_steps: Annotated[
        bool,
        typer.Option(
            "--host-steps/--no-host-steps",
            help="Run operators without a GPU kernel on the host, or reject them.",
        ),
    ] = True,
    provider: Annotated[
        list[Provider] | None,
        typer.Option(
            "--provider",
            case_sensitive=False,
            help="Call a library of NVIDIA's where the host has it: `cublaslt` for matrix products, `cudnn` for "
            "convolutions, `cufft` for Fourier transforms, `cusolver` for linear algebra. Otherwise these are computed "
            "as without the option. Repeatable.",
        ),
    ] = None,
    float32_products: Annotated[
        Float32Products,
        typer.Option(
            "--float32-products",
            help="How GPUs multiply float32 in products, convolutions and attention. `tf32x3`: three times on tensor "
            "cores, with the error of single precision. `ieee`: without tensor cores, also for magnitudes below 1e-34 "
            "and at the end of the range; slower. `tf32`: once, with the precision of float16.",
        ),
    ] = Float32Products.TF32X3,
    tf32: Annotated[bool, typer.Option("--tf32", help="The same as `--float32-products tf32`.")] = False,
    regions: Annotated[
        Regions,
        typer.Option(
            "--regions",
            case_sensitive=False,
            help="Code to compile once and call with different weights: functions that the model has `marked` by "
            "torch.compiler.nested_compile_region; `auto`: also modules that repeat, such as the layers of a "
            "transformer; or `off`.",
        ),
    ] = Regions.MARKED,
    sources: Annotated[
        bool,
        typer.Option(
            "--sources/--no-sources",
            help="Store the sources of the modules, about 300 KB, for `aotpack unpack`.",
        ),
    ] = False,
    tune: Annotated[
        Tune,
        typer.Option(
            "--tune",
            case_sensitive=False,
            help="Measure on this machine in which way each kernel goes fastest, and store that for processors like "
            "this one: `fast` takes less than half of the time of the build, `full` a minute or more, for 1, 2, 4, … "
            "threads. See `aotpack tune`.",
        ),
    ] = Tune.NONE,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the changes of each graph pass, layer by layer.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Builds an archive from a PyTorch model. Requires the extra `build`: `pip install 'aotpack[build]'`.

    **SOURCE** is one of

    * a file `model.py` with the functions `model()`, `example_inputs()` (a tuple of positional arguments or a dict of
      keyword arguments) and, optionally, `dynamic_shapes()` (as for `torch.export.export`). For a model that is called
      in several ways, define `entries()` instead of the last two: a dict from entry names to dicts with any of `args`,
      `kwargs`, `dynamic_shapes`, `method` (default: `forward`), `mode`, `variants`, `input_gradients` and
      `memory_budget`. All entries share the weights and the buffers that one of them writes to. `passes()` returns a
      list of graph passes of your own, such as those that `aotpack.export.rewrite_pattern` makes. With
      `optimizer(model)`, `loss(outputs, …)` and `loss_inputs()` (a tuple: the arguments of `loss` after the outputs)
      the archive trains (docs/training.md); `training()` returns its `TrainingOptions`;
    * `package.module:function`, where the function returns the model, `(model, args)`, or
      `(model, args, dynamic_shapes)`;
    * a `.pt2` file written by `torch.export.save`;
    * an `.onnx` file (docs/onnx.md). Its symbolic dims are dynamic, under their names.

    **Dynamic shapes and scalar inputs** are declared as named dims. Error messages use these names.

    * `--dim x.0=batch:1..64`: axis 0 of the input `x`. Both bounds are optional: `--dim x.0=batch`.
    * `--dim mask.0=batch`: the same dim for another axis.
    * `--dim x.1=length:..512%8`: multiples of 8 only.
    * `--dim y.0=2*batch+1`: a size computed from a dim.
    * `--dim batch.ids.0=n`: the item `ids` of the dict (list, dataclass) `batch`.
    * `--dim n=n:0..100`: the int argument `n` is an input. `--dim f=dynamic`: any int, float or bool is an input.
    * `--dim auto`: every size that the model supports is dynamic. Notes list the sizes that are static.

    **Examples**

        aotpack build model.py -o model.aotpack
        aotpack build model.py -o model.aotpack --dim x.0=batch:1..64
        aotpack build model.py -o model.aotpack --variant batch=1 --variant batch=8 --variant general
        aotpack build mypackage.models:resnet -o resnet.aotpack -t x86-64-v3 -t x86-64-v4
        aotpack build exported.pt2 -o model.aotpack --json
        aotpack build model.onnx -o model.aotpack --size sequence=32
        aotpack build model.py -o model.aotpack --updatable --explain
        aotpack build large.py -o large.aotpack --weights model.safetensors.index.json
        aotpack build large.py -o code.aotpack --code-only
        aotpack build model.py -o model.aotpack --kernel vision::nms=nms.cpp
        aotpack build model.py -o spectrum.aotpack -t cuda-sm_90 --provider cufft
        aotpack build model.py -o model.aotpack --tune fast
        aotpack build model.py -o slow.aotpack --without fold-batch-norm --without pack-conv

    Phases and their durations are printed on stderr. The last phase, `check`, runs the example call in the archive and
    compares the outputs with the model's. If they differ, the archive is not written. An existing archive stays in
    place until the new one is complete.
    """
    from aotpack.cli.build_request import BuildRequest, execute
    from aotpack.cli.dims import parse_dims
    from aotpack.cli.kernels import parse_kernels
    from aotpack.cli.onnx import parse_constants, parse_sizes
    from aotpack.cli.variants import parse_variants
    from aotpack.targets import Target

    request = BuildRequest(
        source=source,
        output=output,
        name=name,
        dims=parse_dims(dim),
        sizes=parse_sizes(size),
        constants=parse_constants(constant),
        kernels=parse_kernels(kernel),
        variants=parse_variants(variant),
        select=select,
        targets=tuple(item.name for item in Target.all_buildable(target or ())),
        weights=tuple(weights or ()),
        without=tuple(without or ()),
        check=check,
        goldens=goldens,
        description=description,
        profile=profile,
        updatable=updatable,
        code_only=code_only,
        host_steps=host_steps,
        float32_products=Float32Products.TF32.value if tf32 else float32_products.value,
        providers=tuple(item.value for item in provider or ()),
        regions=regions.value,
        sources=sources,
        jobs=jobs,
        opt_level=opt_level,
        tune=tune.value,
    )
    # Report invalid files before torch is imported and before anything is compiled.
    request.check_files()
    _require_torch()
    result = execute(request)
    if as_json:
        result.print_json()
    else:
        result.print_text(explain=explain)


def _require_torch() -> None:
    import importlib.util

    from aotpack.errors import BuildError

    if importlib.util.find_spec("torch") is None:
        raise BuildError(
            "torch is required to build archives, but is not installed", hint="pip install 'aotpack[build]'"
        )
