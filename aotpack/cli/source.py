"""The SOURCE of `aotpack build`: a model.py, a `package.module:function`, a .pt2 or an .onnx file."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import typer

from aotpack.archive.files import kind_of
from aotpack.errors import BuildError

_HOW = (
    "SOURCE is a model.py with functions model() and example_inputs() or entries(), a package.module:function, a "
    ".pt2 file written by torch.export.save, or an .onnx file"
)
# Files that may be exported programs; their content decides.
_EXPORTED = (".pt2", ".pt", ".pth")
ONNX = ".onnx"
_WEIGHTS = (".safetensors", ".bin", ".ckpt")
# The arguments of `aot_export` for an entry.
_ENTRY_KEYS = ("args", "kwargs", "dynamic_shapes", "method", "mode", "variants", "input_gradients", "memory_budget")


@dataclass(frozen=True)
class Source:
    """A model with its example call, or with those of its `entries`: name → arguments of `aot_export`; and passes that
    the build runs.

    For a .pt2 file `exported` is set, for an .onnx file `onnx`, and nothing else. `training` has the arguments of
    `aot_export` for a step of training, where the source defines one.
    """

    name: str
    model: Any = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    dynamic_shapes: Any = None
    exported: Path | None = None
    onnx: Path | None = None
    entries: Mapping[str, Mapping[str, Any]] | None = None
    passes: tuple[Any, ...] = ()
    training: Mapping[str, Any] | None = None


def check_source(text: str) -> None:
    """Validates SOURCE as far as possible without running it and without torch.

    Raises:
        BuildError: the file does not exist.
        typer.BadParameter: `text` has none of the three forms.
    """
    path = Path(text)
    if path.suffix in (".py", ONNX, *_EXPORTED):
        _require_file(path)
        return
    module_name, colon, function = text.partition(":")
    if colon and function.isidentifier() and all(part.isidentifier() for part in module_name.split(".")):
        return
    if path.suffix in _WEIGHTS:
        raise typer.BadParameter(
            f"{text!r} contains only weights: give the model.py as SOURCE, and a .safetensors file with --weights",
            param_hint="SOURCE",
        )
    raise typer.BadParameter(f"{text!r} is invalid: {_HOW}", param_hint="SOURCE")


@contextlib.contextmanager
def as_script(text: str) -> Iterator[None]:
    """While active, `sys.argv` is that of SOURCE run as a script: it must not parse the arguments of aotpack."""
    ours, sys.argv = sys.argv, [text]
    try:
        yield
    finally:
        sys.argv = ours


def load_source(text: str, *, around: AbstractContextManager[Any] | None = None) -> Source:
    """Loads the source `text` and calls its functions. The function that creates the model runs inside `around`.

    Raises:
        BuildError: the file, module or function is missing, fails, or returns an unsupported object.
        typer.BadParameter: `text` has none of the three forms.
    """
    check_source(text)
    path = Path(text)
    if path.suffix in _EXPORTED:
        return Source(path.stem, exported=path)
    if path.suffix == ONNX:
        return Source(path.stem, onnx=path)
    with as_script(text):
        if path.suffix == ".py":
            return _from_functions(_import_file(path), "model", text, path.stem, around)
        module_name, _, function = text.partition(":")
        return _from_functions(_import_module(module_name), function, text, module_name.rpartition(".")[2], around)


def _require_file(path: Path) -> None:
    if not path.exists():
        raise BuildError(f"no such file: {path}", hint=_HOW)
    if not path.is_file():
        raise BuildError(f"{path} is {kind_of(path.stat().st_mode)}, not a file", hint=_HOW)


def _import_file(path: Path) -> ModuleType:
    # The file may import its neighbours, as when it is run as a script.
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
                f"no module named {error.name!r}",
                hint="modules are searched in the current directory and in the installed packages",
            ) from None
        _fail(f"importing {name}", error)
    except (Exception, SystemExit) as error:
        _fail(f"importing {name}", error)


def _from_functions(
    module: ModuleType, function: str, text: str, name: str, around: AbstractContextManager[Any] | None
) -> Source:
    passes = _passes(module, text)
    with around or nullcontext():
        made = _guard(_function(module, function, text), f"{function}()")
    shapes = None
    if isinstance(made, tuple):
        if len(made) not in (2, 3):
            raise BuildError(
                f"{function}() of {text} returned a tuple of {len(made)}",
                hint="return the model, (model, args), or (model, args, dynamic_shapes)",
            )
        model, inputs = made[0], made[1]
        shapes = made[2] if len(made) == 3 else None
        where = f"the args that {function}() returned"
        _check_model(model, f"{function}() of {text}")
    else:
        model = made
        _check_model(model, f"{function}() of {text}")
        if hasattr(module, "entries"):
            entries = _entries(_guard(_function(module, "entries", text), "entries()"))
            return Source(name, model, entries=entries, passes=passes)
        inputs = _guard(_function(module, "example_inputs", text), "example_inputs()")
        where = "the return value of example_inputs()"
    if shapes is None and hasattr(module, "dynamic_shapes"):
        shapes = _guard(_function(module, "dynamic_shapes", text), "dynamic_shapes()")
    training = _training(module, model, text)
    if isinstance(inputs, Mapping):
        return Source(name, model, (), dict(inputs), shapes, passes=passes, training=training)
    if isinstance(inputs, (tuple, list)):
        return Source(name, model, tuple(inputs), None, shapes, passes=passes, training=training)
    raise BuildError(
        f"{where} is a {type(inputs).__name__}",
        hint="use a tuple of positional arguments, such as (x,), or a dict of keyword arguments",
    )


def _passes(module: ModuleType, text: str) -> tuple[Any, ...]:
    """What passes() of the source returns; nothing without such a function."""
    if not callable(getattr(module, "passes", None)):
        return ()
    made = _guard(_function(module, "passes", text), "passes()")
    if not isinstance(made, (tuple, list)) or not all(map(callable, made)):
        raise BuildError(
            f"passes() of {text} returned {made!r}", hint="return a list of passes, such as those of rewrite_pattern"
        )
    return tuple(made)


def _training(module: ModuleType, model: Any, text: str) -> dict[str, Any] | None:
    """The step of training that the source defines by optimizer(model), loss(outputs, …), loss_inputs() and, optional,
    training(); None without optimizer().
    """
    make = getattr(module, "optimizer", None)
    if not callable(make):
        return None
    loss = getattr(module, "loss", None)
    if not callable(loss):
        raise BuildError(
            f"{text} has a function optimizer(), but no function loss()",
            hint="define loss(outputs, targets), which returns a tensor with one element",
        )
    loss_args = _guard(_function(module, "loss_inputs", text), "loss_inputs()")
    if not isinstance(loss_args, (tuple, list)):
        raise BuildError(
            f"loss_inputs() returned a {type(loss_args).__name__}", hint="return a tuple, such as (targets,)"
        )
    options = _guard(_function(module, "training", text), "training()") if hasattr(module, "training") else None
    optimizer = _guard(lambda: make(model), "optimizer(model)")
    return {
        "mode": "train_step",
        "loss": loss,
        "loss_args": tuple(loss_args),
        "optimizer": optimizer,
        "training": options,
    }


def _check_model(model: Any, where: str) -> None:
    if isinstance(model, type):
        raise BuildError(
            f"{where} returned the class {model.__name__}, not an instance", hint=f"return {model.__name__}(…)"
        )
    if not callable(model):
        raise BuildError(
            f"{where} returned a {type(model).__name__}", hint="return a torch.nn.Module or a function of tensors"
        )


def _entries(made: Any) -> dict[str, dict[str, Any]]:
    """The return value of entries() as arguments of `aot_export`."""
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
                f"the entry {name!r} of entries() has the unknown key {unknown[0]!r}",
                hint=f"valid keys are {', '.join(_ENTRY_KEYS[:-1])} and {_ENTRY_KEYS[-1]}; all are optional",
            )
        args = given.get("args", ())
        if not isinstance(args, (tuple, list)):
            raise BuildError(
                f"the args of the entry {name!r} are a {type(args).__name__}", hint="use (x,) for one argument"
            )
        result[name] = {**given, "args": tuple(args)}
    return result


def _function(module: ModuleType, name: str, text: str) -> Callable[[], Any]:
    function = getattr(module, name, None)
    if function is None:
        hints = {
            "model": "define model(), which returns a torch.nn.Module",
            "example_inputs": "define example_inputs(), which returns a tuple of positional arguments or a dict of "
            "keyword arguments",
            "loss_inputs": "define loss_inputs(), which returns the arguments of loss() after the outputs: (targets,)",
        }
        raise BuildError(f"{text} has no function {name}()", hint=hints.get(name, _HOW))
    if not callable(function):
        raise BuildError(f"{name} of {text} is a {type(function).__name__}, not a function")
    try:
        required = [
            p.name
            for p in inspect.signature(function).parameters.values()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
    except (TypeError, ValueError):
        required = []
    if required:
        raise BuildError(f"{name}() of {text} must be callable without arguments; it requires {', '.join(required)}")
    return function  # type: ignore[no-any-return]


def _guard(function: Callable[[], Any], what: str) -> Any:
    try:
        return function()
    except (Exception, SystemExit) as error:
        _fail(what, error)


def _fail(what: str, error: Exception | SystemExit) -> NoReturn:
    """Raises an error with the failing line of the user's code, without the frames that led there."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SystemExit):
        # Skip the frames of argparse and similar libraries.
        own = [frame for frame in frames if not _is_library(frame.filename)]
        place = _place(own[-1] if own else None)
        raise BuildError(
            f"{what} called exit({error.code!r}){place}",
            hint="SOURCE is imported, not run as a script, and without arguments: put code that parses arguments, runs "
            'or exits below `if __name__ == "__main__":`',
        ) from error
    at = next((frame for frame in reversed(frames) if "importlib" not in frame.filename), None)
    place = f" ({error.filename}:{error.lineno})" if isinstance(error, SyntaxError) else _place(at)
    hint = None
    if isinstance(error, ImportError) and "relative import" in str(error):
        hint = (
            "give a file of a package as a module, and run the command in the directory above the package: "
            f"aotpack build {_as_module(at.filename) if at else 'package.module'}:function"
        )
    raise BuildError(f"{what} failed: {type(error).__name__}: {error}{place}", hint=hint) from error


def _place(frame: traceback.FrameSummary | None) -> str:
    if frame is None or frame.filename == __file__:
        return ""
    return f" ({frame.filename}:{frame.lineno}: {frame.line})"


def _is_library(path: str) -> bool:
    folders = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), os.path.dirname(__file__))
    return path.startswith(("<", *(folder + os.sep for folder in folders)))


def _as_module(path: str) -> str:
    """The dotted name of a file in its package."""
    file = Path(path).resolve()
    parts, folder = [file.stem], file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) if len(parts) > 1 else f"{file.parent.name}.{file.stem}"
