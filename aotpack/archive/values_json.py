"""What the signatures of entries are made of in the manifest: dims, values, sizes, codes. JSON → Python, strictly."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aotpack.archive.code import CodeError, dims_of, type_of
from aotpack.archive.fields import Scope, read_device, read_dtype, read_integers
from aotpack.archive.manifest import MAX_RANK, STEPS_VERSION, Guard
from aotpack.archive.node import Node, unique
from aotpack.spec import Check, Code, Dim, DimRef, DType, Expr, ShapeElement, TensorSpec

# What modules see of a Python number.
NUMBER_DTYPES = {"int": DType.INT64, "float": DType.FLOAT64, "bool": DType.BOOL}


def decode_dims(node: Node) -> tuple[Dim, ...]:
    """The dims of an entry."""
    dims = tuple(Dim(*_bounds(item, "name")) for item in node.list())
    unique([(node, dim.name) for dim in dims])
    return dims


def decode_guard(node: Node, dims: Collection[str]) -> Guard:
    guard = Guard(*_bounds(node, "dim"))
    if guard.dim not in dims:
        node.fail(f"there is no dim {guard.dim!r}")
    return guard


def decode_check(node: Node, dims: Collection[str]) -> Check:
    members = node.object("text", "code")
    return Check(members["text"].string(), _code(members["code"], bool, dims))


def decode_intermediate(node: Node, dims: Collection[str], scope: Scope) -> TensorSpec:
    """A value that one step hands to others."""
    members = node.object("name", "dtype", "shape", "order", "device")
    shape, order = _layout(members, dims, data_dependent=True)
    device = read_device(members["device"], scope)
    return TensorSpec(members["name"].string(), read_dtype(members["dtype"]), shape, order, device=device)


def decode_value(node: Node, dims: Collection[str], scope: Scope, *, output: bool) -> TensorSpec:
    """An input or output."""
    has_device = scope.version >= STEPS_VERSION
    keys = ("name", "dtype", "shape", "order", "mutated", "number", "dim")
    members = node.object(*keys, *(("device",) if has_device else ()))
    shape, order = _layout(members, dims, data_dependent=output)
    dtype = read_dtype(members["dtype"])
    mutated = members["mutated"].boolean()
    if output and mutated:
        members["mutated"].fail("an output cannot be mutated")
    number = None if members["number"].value is None else members["number"].choice(*NUMBER_DTYPES)
    if number is not None and (dtype is not NUMBER_DTYPES[number] or shape):
        members["number"].fail(f"{number} is {NUMBER_DTYPES[number]} of rank 0, not {dtype} of rank {len(shape)}")
    if number is not None and mutated:
        members["mutated"].fail("a number cannot be mutated")
    if members["dim"].value is not None and (output or number != "int"):
        members["dim"].fail("only an input that is an int gives a dim")
    dim, formula = _number_value(members["dim"], dims)
    device = None if number is not None else 0
    if has_device:
        device = read_device(members["device"], scope)
        if number is not None and device is not None:
            members["device"].fail("a number is in host memory: its device is null")
    return TensorSpec(members["name"].string(), dtype, shape, order, mutated, number, dim, formula, device)


def _layout(
    members: dict[str, Node], dims: Collection[str], *, data_dependent: bool
) -> tuple[tuple[ShapeElement, ...], tuple[int, ...]]:
    """Shape and order."""
    shape = tuple(_size(item, dims, data_dependent) for item in members["shape"].list())
    if len(shape) > MAX_RANK:
        members["shape"].fail(f"rank {len(shape)} is above {MAX_RANK}")
    order = read_integers(members["order"])
    if sorted(order) != list(range(len(shape))):
        members["order"].fail(f"{list(order)} is not a permutation of the {len(shape)} dims")
    return shape, order


def _number_value(node: Node, dims: Collection[str]) -> tuple[str | None, DimRef | Expr | None]:
    """The dim that an int gives, or what it must be."""
    if node.value is None:
        return None, None
    if isinstance(node.value, dict):
        formula = _size(node, dims, output=False)
        assert not isinstance(formula, int)
        if isinstance(formula, DimRef) and formula == DimRef(formula.dim):
            node.fail("a plain dim is given by its name")
        return None, formula
    dim = node.string()
    if dim not in dims:
        node.fail(f"there is no dim {dim!r}")
    return dim, None


def check_dims(
    node: Node,
    dims: Iterable[Dim],
    inputs: Iterable[TensorSpec],
    outputs: Iterable[TensorSpec],
    guards: Iterable[Guard],
    checks: Iterable[Check],
) -> None:
    """A dim has a value in a call only when an input tells it: a size, which is not negative, or a number."""
    numbers = {value.dim for value in inputs if value.dim is not None}
    for item, dim in zip(node.list(), dims, strict=True):
        if dim.min < 0 and dim.name not in numbers:
            Node(dim.min, f"{item.where}.min").fail(f"{dim.min} is negative, but no int gives the dim")
    determined = set(numbers)
    used = [guard.dim for guard in guards]
    for check in checks:
        used += dims_of(check.code)
    for value in inputs:
        determined |= {size.dim for size in value.shape if isinstance(size, DimRef)}
    for value in (*inputs, *outputs):
        for size in (*value.shape, value.formula):
            if isinstance(size, DimRef):
                used.append(size.dim)
            elif isinstance(size, Expr) and size.code is not None:
                used += dims_of(size.code)
    for name in sorted(used):
        if name not in determined:
            node.fail(f"the dim {name!r} is used, but no input determines it")


def _bounds(node: Node, key: str) -> tuple[str, int, int | None, int]:
    members = node.object(key, "min", "max", "multiple_of")
    low = members["min"].integer()
    high = None if members["max"].value is None else members["max"].integer()
    if high is not None and high < low:
        members["max"].fail(f"{high} is less than the least, {low}")
    return members[key].string(), low, high, members["multiple_of"].integer(1)


def _size(node: Node, dims: Collection[str], output: bool) -> ShapeElement:
    if not isinstance(node.value, dict):
        return node.integer(0)
    if "expr" in node.value:
        members = node.object("expr", "code")
        text = members["expr"].string()
        if members["code"].value is not None:
            return Expr(text, _code(members["code"], int, dims))
        if not output:
            members["code"].fail("only outputs may have sizes out of the data")
        return Expr(text)
    members = node.object("dim", "mul", "add")
    dim = members["dim"].string()
    if dim not in dims:
        members["dim"].fail(f"there is no dim {dim!r}")
    # The value of a dim is solved for from the sizes of the inputs, which needs a positive factor. The bounds of the
    # summand leave room to negate it and to add sizes without a thought for overflow.
    return DimRef(dim, members["mul"].integer(1), members["add"].integer(-(1 << 62), 1 << 62))


def _code(node: Node, kind: type, dims: Collection[str]) -> Code:
    items: list[int | float | bool | str] = []
    for item in node.list():
        if isinstance(item.value, dict):
            items.append(item.object("float")["float"].number())
        elif isinstance(item.value, (bool, str)):
            items.append(item.value)
        else:
            items.append(item.integer())
    code = tuple(items)
    try:
        found = type_of(code, dims)
    except CodeError as error:
        node.fail(str(error))
    if found is not kind:
        node.fail(f"{found.__name__} instead of {kind.__name__}")
    return code
