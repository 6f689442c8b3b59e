"""Graphs that are traced by TorchInductor once more, without AOTAutograd.

TorchInductor decomposes a graph by tracing it: first to see which inputs it writes to, then through functionalization,
which takes a third of the time of code generation. Programs that write to nothing need neither. Here calls of their
graphs that the table of decompositions has no entry for go over as they are, with their values; the others are traced.

Private interfaces touched (torch 2.11 to 2.13):
  torch._inductor.compile_fx.{aot_export_module, FakeTensorProp, _unlift_graph}
  torch._guards.detect_fake_mode
  torch.fx.Interpreter._set_current_node
  torch.fx.experimental.proxy_tensor.{disable_proxy_modes_tracing, fetch_object_proxy, fetch_sym_proxy, get_proxy_mode,
    has_proxy_slot, make_fx, track_tensor_tree}
  torch.export.unflatten.{_assign_attr, _AttrKind}
  torch._ops.OpOverload.py_kernels
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.fx
import torch.fx.traceback
from torch._guards import detect_fake_mode
from torch.export.unflatten import _assign_attr, _AttrKind
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    fetch_object_proxy,
    fetch_sym_proxy,
    get_proxy_mode,
    has_proxy_slot,
    make_fx,
    track_tensor_tree,
)
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from aotpack.export.torch_compat import pytree
from aotpack.export.torch_compat.dispatch import enable_python_dispatcher, has_kernel
from aotpack.export.torch_compat.known_values import KnownValues, QuickProp
from aotpack.export.torch_compat.library import custom_definition
from aotpack.export.torch_compat.operators import OpOverload, operator_schema
from aotpack.export.torch_compat.patches import replaced

# Operators of other libraries may have rules of their own for functionalization.
_NAMESPACES = frozenset(["aten", "aotpack", "prims"])
_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


@contextlib.contextmanager
def functional_graphs_kept() -> Iterator[None]:
    """While active, TorchInductor traces of functional graphs only what it decomposes, and runs of them once more only
    what its passes have put in.
    """
    from torch._inductor import compile_fx

    export: Any = vars(compile_fx)["aot_export_module"]
    unlift: Any = compile_fx._unlift_graph
    known = KnownValues()

    def export_module(mod: Any, args: Any, *, decompositions: Any = None, trace_joint: bool, **options: Any) -> Any:
        if not trace_joint and not options:
            graph = decomposed(mod, tuple(args), decompositions or {})
            if graph is not None:
                for node in graph.graph.nodes:
                    known.add(node)
                return graph, None
        return export(mod, args, decompositions=decompositions, trace_joint=trace_joint, **options)

    def unlift_graph(mod: Any, gm: Any, graph_signature: Any) -> Any:
        return gm if graph_signature is None else unlift(mod, gm, graph_signature)

    with (
        replaced(compile_fx, "aot_export_module", export_module),
        replaced(compile_fx, "_unlift_graph", unlift_graph),
        replaced(compile_fx, "FakeTensorProp", partial(QuickProp, known=known)),
    ):
        yield


def decomposed(
    module: torch.fx.GraphModule, inputs: tuple[Any, ...], table: Mapping[Any, Callable[..., Any]]
) -> torch.fx.GraphModule | None:
    """The graph with the calls that `table` decomposes in terms of others.

    None where that takes functionalization: something is written to, by the graph or by a decomposition, sizes come
    out of the data, or an operator is a function of graphs or of another library.
    """
    if not isinstance(module, torch.fx.GraphModule) or not all(map(_is_plain, module.graph.nodes)):
        return None
    mode = detect_fake_mode(inputs)
    if mode is None:
        return None
    with mode, enable_python_dispatcher(), torch.fx.traceback.preserve_node_meta(), torch.no_grad():
        traced = make_fx(
            _Decomposing(module, table).run_traced,
            decomposition_table=dict(table),
            _disable_torch_fn_metadata_mode=True,
        )(*inputs)
    traced.graph.eliminate_dead_code()
    return traced if all(map(_is_plain, traced.graph.nodes)) else None


def _is_plain(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    if node.op == "get_attr" and value is not None and not isinstance(value, torch.Tensor):
        return False
    # A check of the model may have made a size that comes out of the data one of an input: it has no symbol of its own
    # then, but its operator still binds one.
    if node.meta.get("unbacked_bindings") or (value is not None and free_unbacked_symbols(value)):
        return False
    if node.op != "call_function":
        return node.op in ("placeholder", "get_attr", "output")
    if isinstance(node.target, OpOverload):
        return _is_plain_operator(node.target) and not _selects(node)
    return not isinstance(node.target, torch._ops.OperatorBase)


def _is_plain_operator(target: OpOverload) -> bool:
    if target.namespace not in _NAMESPACES or operator_schema(target).is_mutable:
        return False
    if torch.Tag.data_dependent_output in target.tags:
        return False
    known = custom_definition(target.name())
    # Those of Triton become launches of their kernels in functionalization alone.
    return known is None or not known.is_triton_op


def _selects(node: torch.fx.Node) -> bool:
    """Whether the data says how much a call returns. Of indexing, only masks do."""
    if torch.Tag.dynamic_output_shape not in node.target.tags:  # type: ignore[union-attr]
        return False
    if node.target is not torch.ops.aten.index.Tensor:
        return True
    indices = [index.meta.get("val") for index in node.args[1] if isinstance(index, torch.fx.Node)]  # type: ignore[union-attr]
    return not all(isinstance(i, torch.Tensor) and i.dtype in (torch.int64, torch.int32) for i in indices)


class _Decomposing(torch.fx.Interpreter):
    """Runs a graph while it is traced; calls that nothing decomposes become nodes without being run."""

    def __init__(self, module: torch.fx.GraphModule, table: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__(module)
        self._table = table
        # Nodes whose values are not those of the graph: what reads them is run.
        self._changed: set[torch.fx.Node] = set()

    def run_traced(self, *args: Any) -> Any:
        """Runs the graph; to be traced by make_fx."""
        mode: Any = get_proxy_mode()
        self._tracer = mode.tracer
        self._hold_tensors()
        return self.run(*args)

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "get_attr":
            # Not by the tracer, which looks for "a.b" under that very name.
            return self._recorded(n, self._tracer.proxy(self._tracer.graph.get_attr(n.target)))
        if not isinstance(n.target, OpOverload):
            return super().run_node(n)
        if not self._decomposes(n.target) and "val" in n.meta and not any(i in self._changed for i in _read(n)):
            with self._set_current_node(n):
                args, kwargs = pytree.tree_map(self._proxy, self.fetch_args_kwargs_from_env(n))
                return self._recorded(n, self._tracer.create_proxy("call_function", n.target, args, kwargs))
        result = super().run_node(n)
        if not _same(result, n.meta.get("val")):
            self._changed.add(n)
        return result

    def _hold_tensors(self) -> None:
        """Tensors of the module under their names, before any is made up for a constant of a decomposition."""
        root = self._tracer.root
        for kind, tensors in (
            (_AttrKind.PARAMETER, self.module.named_parameters(remove_duplicate=False)),
            (_AttrKind.BUFFER, self.module.named_buffers(remove_duplicate=False)),
        ):
            for name, tensor in tensors:
                _assign_attr(tensor, root, name, attr_kind=kind)

    def _recorded(self, node: torch.fx.Node, proxy: Any) -> Any:
        # One tensor may be the value of several nodes, but has one proxy.
        with disable_proxy_modes_tracing():
            value = pytree.tree_map_only(torch.Tensor, self._untracked, node.meta["val"])
        track_tensor_tree(value, proxy, constant=None, tracer=self._tracer)
        return value

    def _untracked(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach() if has_proxy_slot(tensor, self._tracer) else tensor

    def _proxy(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            found: Any = fetch_object_proxy(self._tracer, value)
            return found.proxy
        return fetch_sym_proxy(self._tracer)(value) if isinstance(value, _NUMBERS) else value

    def _decomposes(self, target: OpOverload) -> bool:
        composite = torch._C.DispatchKey.CompositeImplicitAutograd
        return (
            target in self._table
            or composite in target.py_kernels
            or has_kernel(target.name(), composite.name)
            # Constants are followed through these.
            or target in (torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default)
        )


def _read(node: torch.fx.Node) -> Iterable[torch.fx.Node]:
    """What a call reads, through `getitem`."""
    for given in node.all_input_nodes:
        yield given
        if given.target is operator.getitem:
            yield from given.all_input_nodes


def _same(result: Any, value: Any) -> bool:
    """Whether values of a node are described alike; never adds a guard."""
    results, values = pytree.tree_leaves(result), pytree.tree_leaves(value)
    return len(results) == len(values) and all(
        _described(x) == _described(y) for x, y in zip(results, values, strict=True)
    )


def _described(value: Any) -> object:
    if not isinstance(value, torch.Tensor):
        return str(value)
    return value.dtype, value.device, str(value.shape), str(value.stride()), str(value.storage_offset())
