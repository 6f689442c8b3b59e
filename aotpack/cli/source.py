"""What `aotpack build` is given: a model.py, a `package.module:function` or a .pt2 file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import typer

from aotpack.errors import BuildError

_HOW = (
    "SOURCE is a model.py with functions model() and example_inputs() or entries(), a package.module:function, or a "
    ".pt2 file that torch.export.save wrote"
)
# What `aot_export` is given for an entry.
_ENTRY_KEYS = ("args", "kwargs", "dynamic_shapes", "method", "mode", "variants", "select")


@dataclass(frozen=True)
class Source:
    """A model with its example call, or with those of its `entries`: name → arguments of `aot_export`.

    For a .pt2 file `exported` is set, and nothing else.
    """

    name: str
    model: Any = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    exported: Path | None = None
    entries: Mapping[str, Mapping[str, Any]] | None = None


def load_source(text: str, *, around: AbstractContextManager[Any] | None = None) -> Source:
    """Finds what `text` names and calls its functions, the one that makes the model inside `around`.

    Raises:
        BuildError: the file, module or function is missing, fails, or returns something of no use; the message says
            what.
        typer.BadParameter: `text` is of none of the three forms.
    """
    path = Path(text)
    if path.suffix == ".pt2":
        _require_file(path)
        return Source(path.stem, exported=path)
    if path.suffix == ".py":
        _require_file(path)
        return _from_functions(_import_file(path), "model", text, path.stem, around)
    module_name, colon, function = text.partition(":")
    if colon and function.isidentifier() and all(part.isidentifier() for part in module_name.split(".")):
        return _from_functions(_import_module(module_name), function, text, module_name.rpartition(".")[2], around)
    if path.suffix == ".onnx":
        raise typer.BadParameter("ONNX files cannot be built by this version", param_hint="SOURCE")
    raise typer.BadParameter(f"{text!r} is not understood: {_HOW}", param_hint="SOURCE")


def _require_file(path: Path) -> None:
    if not path.exists():
        raise BuildError(f"no such file: {path}", hint=_HOW)
    if not path.is_file():
        raise BuildError(f"{path} is no file", hint=_HOW)


def _import_file(path: Path) -> ModuleType:
    # So that the file may import what lies beside it, as when it is run as a script.
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(f"aotpack_source_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise BuildError(f"{path} cannot be imported", hint=_HOW)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    loader = spec.loader
    _guard(lambda: loader.exec_module(module), f"importing {path}")
    return module


def _import_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(error.name + ".")):
            raise BuildError(
                f"there is no module {error.name!r}",
                hint="it is looked for in the current folder and among the installed packages",
            ) from None
        _fail(f"importing {name}", error)
    except Exception as error:
        _fail(f"importing {name}", error)


def _from_functions(
    module: ModuleType, function: str, text: str, name: str, around: AbstractContextManager[Any] | None
) -> Source:
    with around or nullcontext():
        made = _guard(_function(module, function, text), f"{function}()")
    shapes = None
    if isinstance(made, tuple):
        if len(made) not in (2, 3):
            raise BuildError(
                f"{function}() of {text} returned a tuple of {len(made)}",
                hint="return the model, or (model, args), or (model, args, dynamic_shapes)",
            )
        model, inputs = made[0], made[1]
        shapes = made[2] if len(made) == 3 else None
        where = f"the args that {function}() returned"
        _check_model(model, f"{function}() of {text}")
    else:
        model = made
        _check_model(model, f"{function}() of {text}")
        if hasattr(module, "entries"):
            return Source(name, model, entries=_entries(_guard(_function(module, "entries", text), "entries()")))
        inputs = _guard(_function(module, "example_inputs", text), "example_inputs()")
        where = "what example_inputs() returned"
    if shapes is None and hasattr(module, "dynamic_shapes"):
        shapes = _guard(_function(module, "dynamic_shapes", text), "dynamic_shapes()")
    if isinstance(inputs, Mapping):
        return Source(name, model, (), dict(inputs), shapes)
    if isinstance(inputs, (tuple, list)):
        return Source(name, model, tuple(inputs), None, shapes)
    raise BuildError(
        f"{where} is a {type(inputs).__name__}",
        hint="give a tuple of positional arguments, such as (x,), or a dict of keyword arguments",
    )


def _check_model(model: Any, where: str) -> None:
    if not callable(model):
        raise BuildError(
            f"{where} returned a {type(model).__name__}", hint="return a torch.nn.Module or a function over tensors"
        )


def _entries(made: Any) -> dict[str, dict[str, Any]]:
    """What entries() returned, as arguments of `aot_export`."""
    hint = 'return {"prefill": {"args": (ids,), "method": "prefill", "dynamic_shapes": …}, …}'
    if not isinstance(made, Mapping) or not made:
        raise BuildError(f"entries() returned {'nothing' if not made else f'a {type(made).__name__}'}", hint=hint)
    result: dict[str, dict[str, Any]] = {}
    for name, given in made.items():
        if not isinstance(name, str) or not isinstance(given, Mapping):
            raise BuildError(f"the entry {name!r} of entries() is a {type(given).__name__}", hint=hint)
        unknown = [key for key in given if key not in _ENTRY_KEYS]
        if unknown:
            raise BuildError(
                f"the entry {name!r} of entries() has the key {unknown[0]!r}",
                hint=f"an entry has {', '.join(_ENTRY_KEYS[:-1])} and {_ENTRY_KEYS[-1]}, all of them optional",
            )
        args = given.get("args", ())
        if not isinstance(args, (tuple, list)):
            raise BuildError(
                f"the args of the entry {name!r} are a {type(args).__name__}", hint="write (x,) for one argument"
            )
        result[name] = {**given, "args": tuple(args)}
    return result


def _function(module: ModuleType, name: str, text: str) -> Callable[[], Any]:
    function = getattr(module, name, None)
    if function is None:
        hints = {
            "model": "define model(), which returns the torch.nn.Module",
            "example_inputs": "define example_inputs(), which returns a tuple of positional arguments or a dict of "
            "keyword arguments",
        }
        raise BuildError(f"{text} has no function {name}()", hint=hints.get(name, _HOW))
    if not callable(function):
        raise BuildError(f"{name} of {text} is a {type(function).__name__}, no function")
    try:
        required = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):
        required = []
    if required:
        raise BuildError(f"{name}() of {text} must be callable without arguments; it needs {', '.join(required)}")
    return function  # type: ignore[no-any-return]


def _guard(function: Callable[[], Any], what: str) -> Any:
    try:
        return function()
    except Exception as error:
        _fail(what, error)


def _fail(what: str, error: Exception) -> NoReturn:
    """Says where in the user's code it went wrong, without the frames that led there."""
    frames = traceback.extract_tb(error.__traceback__)
    at = next((frame for frame in reversed(frames) if "importlib" not in frame.filename), None)
    place = f" ({at.filename}:{at.lineno}: {at.line})" if at is not None and at.filename != __file__ else ""
    if isinstance(error, SyntaxError):
        place = f" ({error.filename}:{error.lineno})"
    raise BuildError(f"{what} failed: {type(error).__name__}: {error}{place}") from error
