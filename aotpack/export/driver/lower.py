"""Lowering of all units of a build to sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from aotpack.errors import UnsupportedOperatorError
from aotpack.export.backends.backend import Tools
from aotpack.export.backends.unsupported_operators import OperatorUse, refuse
from aotpack.export.blocks.instances import lowered_for
from aotpack.export.driver.clock import Clock
from aotpack.export.driver.compile import Lowered
from aotpack.export.driver.prepare import Prepared
from aotpack.export.torch_compat.patches import exclusive


@exclusive
def lower_all(
    units: Sequence[Prepared],
    tools: Tools,
    clock: Clock,
    *,
    weights_known: bool,
    about: Mapping[str, str],
    hooks: bool,
    providers: Sequence[str],
) -> list[list[Lowered]]:
    """All units' sources, before any is compiled: operators without a kernel are reported for all of them at once."""
    lowered: list[list[Lowered]] = []
    uses: list[OperatorUse] = []
    for each in units:
        modules: dict[tuple[int, str], Lowered] = {}
        with ExitStack() as ahead:
            # What each module needs of our kernels compiles while code is generated for all of them.
            early = {
                number: ahead.enter_context(piece.backend.compile_ahead(piece.program, piece.targets, tools))
                for number, piece in enumerate(each.pieces)
                if piece.model is None
            }
            for number, piece in enumerate(each.pieces):
                where = about[each.unit.label] + (f"stage {piece.stage + 1} " if each.split is not None else "")
                try:
                    for target in piece.targets:
                        if piece.model is not None:
                            module = lowered_for(piece.program, modules[piece.model, target].module, piece.names)
                        else:
                            with clock.phase("lower", where + target):
                                module = piece.backend.lower(
                                    piece.program,
                                    target,
                                    weights_known=weights_known,
                                    shared=piece.shared,
                                    hooks=hooks,
                                    providers=providers,
                                    ahead=early[number],
                                )
                        modules[piece.stage, target] = Lowered(
                            piece.backend, piece.program, module, piece.stage, piece.model
                        )
                except UnsupportedOperatorError as error:
                    uses += [OperatorUse(*use) for use in error.uses]
        lowered.append(list(modules.values()))
    refuse(uses)
    return lowered
