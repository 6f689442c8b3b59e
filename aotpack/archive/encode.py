"""Manifest → canonical JSON: sorted keys, no white space, ASCII, a trailing newline."""

from __future__ import annotations

import json
import math
from typing import Any

from aotpack.archive.manifest import (
    CODE_ONLY_VERSION,
    DESCRIPTION_VERSION,
    FORMAT,
    MAIN_DEVICE,
    SAME_VERSION,
    STEPS_VERSION,
    Constant,
    Entry,
    Golden,
    GoldenTensor,
    Groups,
    Guard,
    Implementation,
    Manifest,
    Module,
    Variant,
    Weights,
)
from aotpack.spec import (
    CallSpec,
    Code,
    DataclassSpec,
    DictSpec,
    Dim,
    DimRef,
    Expr,
    ListSpec,
    NamedTupleSpec,
    ShapeElement,
    Spec,
    TensorLeaf,
    TensorSpec,
    TupleSpec,
    ValueLeaf,
)

Json = dict[str, Any]


def canonical(value: Any) -> bytes:
    """The one encoding of a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of `manifest.json`.

    Raises:
        ValueError: the manifest's format version has no devices, steps, assets or features, no code-only archives,
            no description, or no inputs that are one tensor.
    """
    version = manifest.format_version
    if version < STEPS_VERSION and manifest.devices != (MAIN_DEVICE,):
        raise ValueError(f"format version {version} has one device, {MAIN_DEVICE!r}")
    if version < CODE_ONLY_VERSION and manifest.absent:
        raise ValueError(f"format version {version} has no constants without bytes")
    if version < DESCRIPTION_VERSION and manifest.description is not None:
        raise ValueError(f"format version {version} has no description")
    return canonical(
        {
            "format": FORMAT,
            "format_version": version,
            "name": manifest.name,
            "producer": dict(manifest.producer),
            "files": [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in manifest.files],
            "constants": [_constant(constant) for constant in manifest.constants],
            "entries": [_entry(entry, version) for entry in manifest.entries],
            "report": manifest.report,
            "weights": None if manifest.weights is None else _weights(manifest.weights),
            **({"devices": list(manifest.devices)} if version >= STEPS_VERSION else {}),
            **({"description": manifest.description} if version >= DESCRIPTION_VERSION else {}),
        }
    )


def _constant(constant: Constant) -> Json:
    return {
        "name": constant.name,
        "role": constant.role,
        "sources": list(constant.sources),
        "dtype": constant.dtype.value,
        "shape": list(constant.shape),
        "stride": list(constant.stride),
        "file": constant.file,
        "offset": constant.offset,
        "nbytes": constant.nbytes,
        "sha256": constant.sha256,
        "mutated": constant.mutated,
    }


def _entry(entry: Entry, version: int) -> Json:
    return {
        "name": entry.name,
        "dims": [_bounds("name", dim.name, dim) for dim in entry.dims],
        "inputs": [_value(value, version) for value in entry.inputs],
        "outputs": [_value(value, version) for value in entry.outputs],
        "in_spec": encode_spec(entry.in_spec),
        "out_spec": encode_spec(entry.out_spec),
        "variants": [_variant(variant, entry, version) for variant in entry.variants],
        "goldens": [_golden(golden, version) for golden in entry.goldens],
    }


def _bounds(key: str, name: str, bounds: Dim | Guard) -> Json:
    return {key: name, "min": bounds.min, "max": bounds.max, "multiple_of": bounds.multiple_of}


def _intermediate(value: TensorSpec) -> Json:
    return {
        "name": value.name,
        "dtype": value.dtype.value,
        "shape": [_size(size) for size in value.shape],
        "order": list(value.order),
        "device": value.device,
    }


def _value(value: TensorSpec, version: int) -> Json:
    encoded = _intermediate(value) | {
        "mutated": value.mutated,
        "number": value.number,
        "dim": value.dim if value.formula is None else _size(value.formula),
    }
    if version < STEPS_VERSION and encoded.pop("device") != (0 if value.number is None else None):
        raise ValueError(f"format version {version} has no devices of values")
    return encoded


def _size(size: ShapeElement) -> int | Json:
    if isinstance(size, DimRef):
        return {"dim": size.dim, "mul": size.mul, "add": size.add}
    if isinstance(size, Expr):
        return {"expr": size.text, "code": None if size.code is None else _code(size.code)}
    return size


def _code(code: Code) -> list[Any]:
    return [{"float": item} if isinstance(item, float) else item for item in code]


def encode_spec(spec: Spec | CallSpec) -> Json:
    """The JSON value of a spec tree."""
    match spec:
        case TensorLeaf(index):
            return {"kind": "tensor", "index": index}
        case ValueLeaf(float() as value) if not math.isfinite(value):
            return {"kind": "float", "value": str(value)}
        case ValueLeaf(value):
            return {"kind": "value", "value": value}
        case TupleSpec(items):
            return {"kind": "tuple", "items": _specs(items)}
        case ListSpec(items):
            return {"kind": "list", "items": _specs(items)}
        case DictSpec(keys, items):
            return {"kind": "dict", "keys": list(keys), "items": _specs(items)}
        case NamedTupleSpec(type_name, keys, items):
            return {"kind": "namedtuple", "type": type_name, "keys": list(keys), "items": _specs(items)}
        case DataclassSpec(type_name, keys, items):
            return {"kind": "dataclass", "type": type_name, "keys": list(keys), "items": _specs(items)}
        case CallSpec(args, names, keys, items):
            return {
                "kind": "call",
                "args": _specs(args),
                "names": list(names),
                "kwargs": {"keys": list(keys), "items": _specs(items)},
            }
    raise TypeError(f"not a spec: {spec!r}")


def _specs(items: tuple[Spec, ...]) -> list[Json]:
    return [encode_spec(item) for item in items]


def _variant(variant: Variant, entry: Entry, version: int) -> Json:
    if version < STEPS_VERSION:
        trivial = (Implementation.of_module(m, len(entry.inputs), len(entry.outputs)) for m in variant.modules)
        if variant.implementations != tuple(trivial):
            raise ValueError(f"format version {version} has one module per target, without steps")
        implementations = {"modules": [_module(module, version) for module in variant.modules]}
    else:
        implementations = {"targets": [_implementation(each, version) for each in variant.implementations]}
    return {
        "name": variant.name,
        "guards": [_bounds("dim", guard.dim, guard) for guard in variant.guards],
        "checks": [{"text": check.text, "code": _code(check.code)} for check in variant.checks],
        **implementations,
        **_same(variant.same, version),
    }


def _same(same: Groups, version: int) -> Json:
    if version >= SAME_VERSION:
        return {"same": [list(group) for group in same]}
    if same:
        raise ValueError(f"format version {version} has no inputs that are one tensor")
    return {}


def _implementation(implementation: Implementation, version: int) -> Json:
    return {
        "target": implementation.target,
        "values": [_intermediate(value) for value in implementation.values],
        "steps": [
            {
                "device": step.device,
                "inputs": [{reference.source.value: reference.index} for reference in step.inputs],
                "outputs": [{reference.source.value: reference.index} for reference in step.outputs],
                "module": _module(step.module, version),
            }
            for step in implementation.steps
        ],
    }


def _module(module: Module, version: int) -> Json:
    encoded: Json = {
        "target": module.target,
        "abi_version": module.abi_version,
        "file": module.file,
        "constants": list(module.constants),
        "imports": list(module.imports),
        "kernels": [{"name": kernel.name, "ops": list(kernel.ops)} for kernel in module.kernels],
        "assets": [
            {"name": asset.name, "file": asset.file, "offset": asset.offset, "nbytes": asset.nbytes}
            for asset in module.assets
        ],
        "features": list(module.features),
    }
    if version < STEPS_VERSION:
        if module.assets or module.features:
            raise ValueError(f"format version {version} has modules without assets and features")
        del encoded["assets"], encoded["features"]
    return encoded


def _golden(golden: Golden, version: int) -> Json:
    return {
        "inputs": [_golden_tensor(tensor) for tensor in golden.inputs],
        "outputs": [_golden_tensor(tensor) for tensor in golden.outputs],
        "tolerance": golden.tolerance,
        **_same(golden.same, version),
    }


def _golden_tensor(tensor: GoldenTensor) -> Json:
    return {
        "dtype": tensor.dtype.value,
        "shape": list(tensor.shape),
        "file": tensor.file,
        "offset": tensor.offset,
        "nbytes": tensor.nbytes,
        "step": tensor.step,
    }


def _weights(weights: Weights) -> Json:
    fold = weights.fold
    return {
        "tensors": [
            {
                "name": tensor.name,
                "dtype": tensor.dtype.value,
                "shape": list(tensor.shape),
                "constant": tensor.constant,
            }
            for tensor in weights.tensors
        ],
        "fold": None if fold is None else {"entry": fold.entry, "results": list(fold.results)},
    }
