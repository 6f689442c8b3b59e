"""Parses `dynamic_shapes`: the declaration for each tensor and number of the example call.

Accepted, as in torch.export: None; a dict by the name of the parameter; a tuple or list by position; below it the
structure of the argument (lists and tuples by position, dicts by key, dataclasses and namedtuples by field). A tensor
has a dict from axis to size, or a tuple with one size per axis. A size is

- an `aotpack.Dim`, a `torch.export.Dim`, or either times and plus ints: a size with a name;
- a string, the name of a dim whose range is given elsewhere or not at all;
- `"auto"` or `torch.export.Dim.AUTO`: it varies if the model lets it;
- `"dynamic"` or `torch.export.Dim.DYNAMIC`: it varies, or the capture fails;
- None, an int or `torch.export.Dim.STATIC`: it is fixed.

An int argument takes a dim, a name, `"auto"` or `"dynamic"`; a float or bool `"dynamic"`: each call then passes it.
`"auto"` in the place of a tensor or of a structure stands for all sizes in it, and in the place of everything for all
sizes of the call. Inputs may also be named as the signature names them: `{"batch.ids": {0: "n"}}`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import Dim as TorchDim

from aotpack.errors import CaptureError
from aotpack.export.capture.user_dims import AUTO, LEAST, STATIC, DimNames, bounds, derived, hint, shown
from aotpack.export.ir import pytree_spec
from aotpack.export.symbolic_shapes.declared import NUMBER, Declared
from aotpack.export.torch_compat import pytree
from aotpack.spec import DYNAMIC, UNSTATED, Dim, DimRef


@dataclass(frozen=True)
class Shapes:
    """What varies from call to call.

    Attributes:
        torch: the `dynamic_shapes` of torch.export: `Dim.AUTO` for every size and int that may vary; None where none
            does.
        declared: names, ranges and relations.
        numbers: by leaf of `(args, kwargs)`, in pytree order: "int", "float" or "bool" for those that vary.
        demanded: (leaf, axis) of sizes without a name that must not be fixed.
    """

    torch: Any
    declared: Declared
    numbers: Mapping[int, str]
    demanded: frozenset[tuple[int, int]] = frozenset()


def parse(
    function: Callable[..., Any],
    forward: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
) -> Shapes:
    """Reads `dynamic_shapes` for an example call.

    Args:
        function: what the user calls: its parameters are the names in `dynamic_shapes`.
        forward: what torch.export calls with the same arguments; `function` itself or a wrapper of it.
        args, kwargs: the example call.
        dynamic_shapes: see the module.

    Raises:
        CaptureError: it does not fit the call; the message names the input, the axis and the dim.
    """
    reader = _Reader(pytree_spec.leaf_names(args, dict(kwargs), pytree_spec.positional_names(function, len(args))))
    roots = _roots(function, args, kwargs, dynamic_shapes, reader)
    for value, spec, name in roots:
        reader.read(value, spec, name)
    return reader.result(forward, args, kwargs)


# ---- the arguments --------------------------------------------------------------------------------------------------


def _roots(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Any, reader: _Reader
) -> list[tuple[Any, Any, str]]:
    """Each argument, in pytree order, with what `shapes` says of it and its name."""
    names = pytree_spec.positional_names(function, len(args))
    roots = [name or f"arg{i}" for i, name in enumerate(names)]
    values = [*zip(roots, args, strict=True), *kwargs.items()]
    if shapes is None or hint(shapes) == AUTO:
        return [(value, None if shapes is None else _ALL_SIZES, name) for name, value in values]
    if isinstance(shapes, Mapping):
        found = _by_name(function, names, args, kwargs, shapes, reader)
    elif isinstance(shapes, (tuple, list)):
        found = _by_position(function, args, kwargs, shapes)
    else:
        raise CaptureError(
            f"dynamic_shapes is {shown(shapes)}",
            hint='use a dict from argument names to dims, a tuple of these, "auto" or None',
        )
    return [(value, spec, name) for (name, value), spec in zip(values, found, strict=True)]


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)]


def _by_name(
    function: Callable[..., Any],
    names: Sequence[str | None],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    shapes: Mapping[Any, Any],
    reader: _Reader,
) -> list[Any]:
    """What a dict says of each argument. Names of inputs of the signature are left to the reader."""
    parameters = _parameters(function)
    plain = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    extra = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    known = {p.name for p in parameters}
    used: set[Any] = set()

    def of(key: Any) -> Any:
        used.add(key)
        return shapes.get(key)

    result: list[Any] = []
    for i in range(len(args)):
        if i < len(plain):
            result.append(of(plain[i]))
        else:
            own = of(f"arg{i}")
            listed = of(rest) if rest is not None else None
            result.append(own if own is not None else _element(listed, i - len(plain), rest))
    further = of(extra) if extra is not None else None
    for key in kwargs:
        own = of(key)
        result.append(own if own is not None or not isinstance(further, Mapping) else further.get(key))
    for key in set(reader.names) - used:
        if key in shapes:
            reader.named[key] = of(key)
    unknown = [key for key in shapes if key not in used and not (key in known and shapes[key] is None)]
    if unknown:
        given = [*(name or f"arg{i}" for i, name in enumerate(names)), *kwargs]
        raise CaptureError(
            f"dynamic_shapes names {', '.join(map(repr, unknown))}, which is not in the example call",
            hint=f"its arguments are {', '.join(given) or 'none'}",
        )
    return result


def _element(listed: Any, index: int, name: str | None) -> Any:
    if listed is None or hint(listed) == AUTO:
        return listed
    if not isinstance(listed, (tuple, list)) or index >= len(listed):
        raise CaptureError(
            f"dynamic_shapes[{name!r}] is {shown(listed)}",
            hint=f"use a tuple with one element for each argument in *{name}",
        )
    return listed[index]


def _by_position(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], shapes: Sequence[Any]
) -> list[Any]:
    total = len(args) + len(kwargs)
    if len(shapes) != total:
        # torch.export's form has one element for all of `*args`.
        plain = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in _parameters(function))
        if len(args) > plain and len(shapes) == plain + 1 + len(kwargs) and isinstance(shapes[plain], (tuple, list)):
            return _by_position(function, args, kwargs, [*shapes[:plain], *shapes[plain], *shapes[plain + 1 :]])
        raise CaptureError(
            f"dynamic_shapes has {len(shapes)} elements, but the example call has {total} arguments",
            hint="use one for each argument, None for static arguments, or a dict from names to dims",
        )
    return list(shapes)


# ---- values ---------------------------------------------------------------------------------------------------------


class _AllSizes:
    """Stands for `"auto"` above the leaves: sizes vary where they can, numbers are constants."""


_ALL_SIZES = _AllSizes()


@dataclass
class _Reader:
    """Walks through the example call and notes what varies. Leaves are numbered in the order of the walk.

    Attributes:
        names: of the leaves.
        named: what is said of leaves by these names.
        sizes, torch: for each leaf, what goes into `Shapes`.
    """

    names: Sequence[str]
    named: dict[str, Any] = field(default_factory=dict)
    dims: DimNames = field(default_factory=DimNames)
    sizes: list[dict[int, DimRef]] = field(default_factory=list)
    torch: list[Any] = field(default_factory=list)
    numbers: dict[int, str] = field(default_factory=dict)
    demanded: set[tuple[int, int]] = field(default_factory=set)

    def read(self, value: Any, spec: Any, path: str) -> None:
        """Reads what `spec` says of `value`, and of all leaves below."""
        children = pytree.tree_flatten_with_path(value, is_leaf=lambda v: v is not value)[0]
        if len(children) == 1 and not children[0][0]:
            self._leaf(value, spec)
            return
        keys = [pytree_spec.key_text(key_path[0]) for key_path, _ in children]
        for key, (_, child), below in zip(keys, children, _below(spec, keys, value, path), strict=True):
            self.read(child, below, f"{path}.{key}")

    def result(self, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Shapes:
        self.dims.check_examples()
        dims = self.dims.dims
        ints = {sizes[NUMBER].dim for sizes in self.sizes if NUMBER in sizes}
        # An int with a range is meant to have all of it.
        asked = frozenset(
            name
            for name, dim in dims.items()
            if (dim.min >= 0 and dim.min is not UNSTATED) or (name in ints and dim.max is not None)
        )
        # torch knows no other ints than Python's own.
        dims = {name: replace(dim, min=int(dim.min)) for name, dim in dims.items()}
        declared = Declared(tuple(self.sizes), dims, asked)
        vary = any(leaf is not None for leaf in self.torch)
        whole = _for_torch(forward, args, dict(kwargs), self.torch) if vary else None
        return Shapes(whole, declared, self.numbers, frozenset(self.demanded))

    def _leaf(self, value: Any, spec: Any) -> None:
        index = len(self.sizes)
        name = self.names[index]
        if name in self.named:
            if spec is not None:
                raise CaptureError(f"dynamic_shapes contains the input {name!r} twice")
            spec = self.named[name]
        self.sizes.append({})
        self.torch.append(None)
        if spec is None or hint(spec) == STATIC:
            return
        if isinstance(value, torch.Tensor):
            sizes = _sizes(value, spec, name)
            vary = [axis for axis, size in sizes.items() if self._axis(index, axis, value.shape[axis], size, name)]
            self.torch[index] = dict.fromkeys(vary, TorchDim.AUTO) or None
        elif isinstance(spec, _AllSizes):
            return
        elif isinstance(value, int) and not isinstance(value, bool):
            self._int(index, value, spec, name)
        elif isinstance(value, (bool, float)):
            if hint(spec) != DYNAMIC:
                kind = type(value).__name__
                raise CaptureError(
                    f"input {name!r} is a {kind}, but dynamic_shapes has {shown(spec)}",
                    hint=f"write aotpack.DYNAMIC for a {kind} that each call passes, None for a constant",
                )
            self.numbers[index] = "bool" if isinstance(value, bool) else "float"
        elif not isinstance(spec, (Mapping, tuple, list)) or spec:
            raise CaptureError(
                f"dynamic_shapes has a dim for the input {name!r}, which is {shown(value)}",
                hint="only tensors and scalars can be dynamic; remove it",
            )

    def _axis(self, index: int, axis: int, actual: int, size: Any, name: str) -> bool:
        """Notes what is said of one axis of a tensor; whether it varies."""
        where = f"input {name!r}, axis {axis}"
        said = hint(size)
        if size is None or said == STATIC:
            return False
        if isinstance(size, int) and not isinstance(size, bool):
            if size != actual:
                raise CaptureError(f"{where} is {actual} in the example call, but dynamic_shapes fixes it to {size}")
            return False
        if said is not None:
            low, high = bounds(size)
            if low is None and high is None:
                if said == DYNAMIC:
                    self.demanded.add((index, axis))
                return True
            # A range needs a dim to belong to.
            size = Dim(self.dims.fresh(f"{name}_{axis}"), low or UNSTATED, high)
        dim = derived(size)
        if dim is None:
            raise CaptureError(
                f"{where}: {shown(size)}, is not a size",
                hint='use a Dim, its name, 2*dim or dim + 1, "auto", "dynamic", None or an int',
            )
        self.sizes[index][axis] = self.dims.enter(dim, actual, where, by_name=isinstance(size, str))
        return True

    def _int(self, index: int, value: int, spec: Any, name: str) -> None:
        where = f"input {name!r}"
        if isinstance(spec, int) and not isinstance(spec, bool):
            if spec != value:
                raise CaptureError(f"{where} is {value} in the example call, but dynamic_shapes fixes it to {spec}")
            return
        if hint(spec) is not None:
            low, high = bounds(spec)
            spec = Dim(self.dims.fresh(name), LEAST if low is None else low, high)
        dim = derived(spec)
        if dim is None:
            raise CaptureError(
                f"{where} is an int, but dynamic_shapes has {shown(spec)}",
                hint="use a Dim with the range of the int, its name, 2*dim or dim + 1 of another input's dim, "
                "or aotpack.DYNAMIC for any value",
            )
        if dim.root.multiple_of != 1 and (dim.mul, dim.add) == (1, 0):
            raise CaptureError(
                f"{where}: the dim {dim.root.name!r} has multiple_of={dim.root.multiple_of}",
                hint="a dim of an int argument supports only a range",
            )
        self.numbers[index] = "int"
        self.torch[index] = TorchDim.AUTO
        self.sizes[index][NUMBER] = self.dims.enter(dim, value, where, by_name=isinstance(spec, str))


def _below(spec: Any, keys: Sequence[str], value: Any, path: str) -> list[Any]:
    """What is said of each child of a container."""
    if spec is None or isinstance(spec, _AllSizes) or hint(spec) == STATIC:
        return [spec for _ in keys]
    if hint(spec) == AUTO:
        return [_ALL_SIZES for _ in keys]
    if isinstance(spec, Mapping):
        by_text = {str(key): item for key, item in spec.items()}
        unknown = [key for key in by_text if key not in keys]
        if unknown:
            raise CaptureError(
                f"dynamic_shapes of {path!r} names {', '.join(map(repr, unknown))}",
                hint=f"{path!r} is a {type(value).__name__} of {', '.join(keys) or 'nothing'}",
            )
        return [by_text.get(key) for key in keys]
    if type(spec) is type(value) and not isinstance(spec, (tuple, list)):
        # A dataclass with dims in the place of tensors.
        return [getattr(spec, key) for key in keys]
    if isinstance(spec, (tuple, list)) and len(spec) == len(keys):
        return list(spec)
    raise CaptureError(
        f"dynamic_shapes of {path!r} is {shown(spec)}, but {path!r} is a {type(value).__name__} of {len(keys)}",
        hint="mirror its structure, with None for static parts",
    )


def _sizes(value: torch.Tensor, spec: Any, name: str) -> dict[int, Any]:
    """The sizes of a tensor by axis, as they were written."""
    if isinstance(spec, _AllSizes) or hint(spec) is not None:
        return dict.fromkeys(range(value.dim()), AUTO if isinstance(spec, _AllSizes) else spec)
    if isinstance(spec, Mapping):
        for axis in spec:
            if not isinstance(axis, int) or isinstance(axis, bool) or not 0 <= axis < value.dim():
                raise CaptureError(
                    f"dynamic_shapes contains axis {axis!r} of the input {name!r}, a tensor with {value.dim()} dims",
                    hint=f"its axes are {', '.join(map(str, range(value.dim())))}" if value.dim() else "it has no axes",
                )
        return dict(spec)
    if isinstance(spec, (tuple, list)):
        if len(spec) != value.dim():
            raise CaptureError(
                f"dynamic_shapes has {len(spec)} sizes for the input {name!r}, a tensor with {value.dim()} dims",
                hint="use one for each axis, or a dict from axes to sizes",
            )
        return dict(enumerate(spec))
    raise CaptureError(
        f"dynamic_shapes of the input {name!r} is {shown(spec)}",
        hint='use a dict from axes to dims, such as {0: "batch"}, a tuple with a size for each axis, or "auto"',
    )


def _for_torch(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Sequence[Any]
) -> dict[str, Any]:
    """The shapes in the structure that torch.export asks for: by parameter of `forward`, lists for dataclasses."""
    flat, tree = pytree.tree_flatten((args, kwargs))
    numbered = pytree.tree_unflatten(list(range(len(flat))), tree)

    def structured(value: Any) -> Any:
        children, below = pytree.tree_flatten(value, is_leaf=lambda v: v is not value)
        if below.is_leaf():
            return leaves[value]
        shapes = [structured(child) for child in children]
        return pytree.tree_unflatten(shapes, below) if isinstance(value, (tuple, list, dict)) else shapes

    bound = inspect.signature(forward).bind(*numbered[0], **numbered[1]).arguments
    return {name: structured(value) for name, value in bound.items()}
