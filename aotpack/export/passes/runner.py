"""Runs passes over a program, checks the contract after each, and names the pass that broke it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from aotpack.errors import BuildError, PassError
from aotpack.export.diagnostics.internal_errors import REPORT, is_callers, place_of, summary
from aotpack.export.ir.program import Program
from aotpack.export.ir.regions import calls_graphs
from aotpack.export.ir.rewriter import fake_mode
from aotpack.export.passes.inner_graphs import everywhere, with_constants_inside, with_constants_outside
from aotpack.export.probing.lowering_guards import lowering_checks
from aotpack.export.symbolic_shapes import shape_env
from aotpack.export.symbolic_shapes.dims import expression
from aotpack.export.torch_compat.dispatch import enable_python_dispatcher
from aotpack.export.torch_compat.known_values import QuickProp
from aotpack.export.torch_compat.older_torch import captures_mended
from aotpack.spec import DimRef

Step = Callable[[Program], Program]


@dataclass(frozen=True)
class Pass:
    """A step of the pipeline with a name, by which users know it.

    Attributes:
        step: the function.
        part_of: the name of the pass that this one belongs to: it runs when that one does.
        always: whether it is needed for right results, and so cannot be switched off.
    """

    step: Step
    part_of: str | None = None
    always: bool = False

    @property
    def name(self) -> str:
        return self.step.__name__.replace("_", "-")

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return (self.step.__doc__ or "").partition("\n")[0]

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, program: Program) -> Program:
        return self.step(program)


def run_passes(program: Program, passes: Sequence[Step]) -> Program:
    """The program after all passes.

    Raises:
        PassError: a pass failed, or left a graph that breaks the contract of Program.
    """
    program = with_constants_inside(program)
    for step in passes:
        before = program.graph_module
        try:
            with shape_env.sizes_from_zero(), shape_env.usual_sizes(), shape_env.lines_of_the_model():
                program = everywhere(step, program)
            if program.graph_module is not before:
                check(program)
            refuse_specialization(program, f"pass {step.__name__}")
            later = lowering_checks(program, f"pass {step.__name__}")
            program = replace(program, checks=(*program.checks, *later)) if later else program
        except BuildError:
            raise
        except (MemoryError, OSError):
            raise
        except Exception as error:
            hint = None if is_callers(error) else REPORT
            raise PassError(f"pass {step.__name__} failed: {summary(error)}{place_of(error)}", hint=hint) from error
    return with_constants_outside(program)


def check(program: Program) -> None:
    """Lints the graph and compares its interface with the signature."""
    program.graph.lint()
    placeholders = program.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(program.signature.inputs):
        raise PassError(
            f"{len(placeholders)} placeholders, but {len(program.signature.inputs)} inputs in the signature"
        )
    results = program.graph.output_node().args[0]
    if not isinstance(results, tuple) or len(results) != len(program.signature.outputs):
        raise PassError("the graph's results do not match the signature")


def refuse_specialization(program: Program, where: str) -> None:
    """Raises PassError when a dynamic size of the inputs has become a number: the archive would compute wrongly."""
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), program.signature.inputs, strict=True):
        # The placeholder of an int that varies is a symbol.
        sizes = getattr(node.meta["val"], "shape", ())
        for axis, (size, element) in enumerate(zip(sizes, spec.shape, strict=True)):
            # `expr` applies what the shape environment has learned meanwhile.
            if isinstance(element, DimRef) and not expression(size).free_symbols:
                raise PassError(
                    f"{where} fixed the dim {element.dim!r} (input {spec.name!r}, axis {axis}) to {size}",
                    hint="make this dim static in dynamic_shapes, and please report this model",
                )


@captures_mended()
def propagate(program: Program) -> None:
    """Recomputes the fake tensors of all nodes, so that strides follow the operators that a pass put in."""
    mode = fake_mode(program.graph_module)
    values = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
    with torch.no_grad(), mode, enable_python_dispatcher():
        # Parameters are real; the mode makes fakes of them on the way.
        allow, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
        try:
            _Propagation(program.graph_module, mode).propagate_dont_convert_inputs(*values)
        finally:
            mode.allow_non_fake_inputs = allow


class _Propagation(QuickProp):
    """Constants keep the fake tensors that they have: a derived one has no value to make another from. So do results of
    graphs inside, which passes promise the layouts that they were captured with.
    """

    def run_node(self, n: torch.fx.Node) -> object:
        kept = (n.op == "get_attr" and "val" in n.meta) or calls_graphs(n)
        return n.meta["val"] if kept else super().run_node(n)
