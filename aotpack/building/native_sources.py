"""Where the C++ sources that builds compile are, and which of them a module needs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path

from aotpack._version import __version__

_INCLUDE = re.compile(r'^\s*#include "([^"]+)"', re.MULTILINE)
_FUNCTION = re.compile(r"\b(aoti_torch_\w+)\(")

# What every module links.
_BASE = ("tensor.cpp", "copy.cpp", "convert.cpp", "openmp.cpp", "generated/failures.cpp", "generated/wrapper.cpp")


@lru_cache(maxsize=1)
def source_root() -> Path:
    """The folder with `include`, `kernels` and `module`: inside an installed package, or `csrc` of a source tree.

    Raises:
        FileNotFoundError: the installation lacks them.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package.parent / "csrc", package / "_csrc"):
        if (candidate / "module" / "operators.h").is_file():
            return candidate.resolve()
    raise FileNotFoundError(f"the C++ sources of aotpack are missing from {package}; install the package again")


def module_folder() -> Path:
    return source_root() / "module"


def probe_source() -> Path:
    """The program that times algorithms of kernels for builds."""
    return source_root() / "probe" / "algorithms.cpp"


def include_folders() -> list[Path]:
    """In the order that they must be searched: ours shadow torch's."""
    root = source_root()
    return [root / "module" / "shadow", root / "module" / "vecmath", root / "module", root / "include", root]


@lru_cache(maxsize=1)
def module_imports() -> tuple[str, ...]:
    """The functions that every compiled module asks of the runtime, in its order: the list in module_abi.h."""
    return tuple(re.findall(r"X\((\w+)\)", _macro_of_module_abi(r"AOTPACK_MODULE_IMPORTS\(X\)")))


@lru_cache(maxsize=1)
def device_imports() -> tuple[str, ...]:
    """The functions that modules for devices ask of the runtime after those, in their order."""
    return tuple(re.findall(r"X\((\w+)\)", _macro_of_module_abi(r"AOTPACK_DEVICE_IMPORTS\(X\)")))


@lru_cache(maxsize=1)
def tensor_map_imports() -> tuple[str, ...]:
    """The functions that modules with tensor maps ask of the runtime after those for devices."""
    return tuple(re.findall(r"X\((\w+)\)", _macro_of_module_abi(r"AOTPACK_TENSOR_MAP_IMPORTS\(X\)")))


@lru_cache(maxsize=1)
def provider_imports() -> tuple[str, ...]:
    """The functions that modules which use libraries of the device's vendor ask of the runtime after those."""
    return tuple(re.findall(r"X\((\w+)\)", _macro_of_module_abi(r"AOTPACK_PROVIDER_IMPORTS\(X\)")))


@lru_cache(maxsize=1)
def profile_imports() -> tuple[str, ...]:
    """The functions that modules with hooks for profiles ask of the runtime after those of every module."""
    return tuple(re.findall(r"X\((\w+)\)", _macro_of_module_abi(r"AOTPACK_PROFILE_IMPORTS\(X\)")))


@lru_cache(maxsize=1)
def module_abi_version() -> int:
    """The version of the module ABI that every compiled module has: the one that module_abi.h declares."""
    return int(_macro_of_module_abi("AOTPACK_MODULE_ABI_VERSION").removesuffix("u"))


def _macro_of_module_abi(name: str) -> str:
    text = (source_root() / "include" / "aotpack" / "module_abi.h").read_text()
    declared = re.search(rf"^#define {name} (.+)$", text, re.MULTILINE)
    if declared is None:
        raise ValueError(f"module_abi.h does not define {name}")
    return declared[1]


@lru_cache(maxsize=1)
def operator_groups() -> dict[str, str]:
    """Operator function → the group (module/declare/<group>.h, module/ops/<group>.cpp) that implements it."""
    groups: dict[str, str] = {}
    for header in sorted((module_folder() / "declare").glob("*.h")):
        groups.update(dict.fromkeys(_FUNCTION.findall(header.read_text()), header.stem))
    return groups


def groups_of(shims: Iterable[str]) -> list[str]:
    """The groups whose operators are among `shims`, in a fixed order."""
    groups = operator_groups()
    return sorted({groups[shim] for shim in shims if shim in groups})


def sources_for(shims: Iterable[str]) -> list[Path]:
    """The .cpp files that a module which calls `shims` links, in a fixed order."""
    folder = module_folder()
    wanted = {folder / name for name in _BASE}
    wanted |= {folder / "ops" / f"{group}.cpp" for group in groups_of(shims)}
    return closure(wanted)


def closure(sources: Iterable[Path]) -> list[Path]:
    """These .cpp files and those that implement what they include, in a fixed order."""
    wanted, closed = set(sources), set[Path]()
    while wanted:
        source = wanted.pop()
        closed.add(source)
        # A header with a .cpp of its name beside it is implemented there.
        wanted |= {
            header.with_suffix(".cpp") for header in local_includes(source) if header.with_suffix(".cpp").is_file()
        } - closed
    return sorted(closed)


@cache
def local_includes(source: Path) -> frozenset[Path]:
    """All headers of this package that `source` includes, directly or not."""
    found: set[Path] = set()
    stack = [source]
    while stack:
        current = stack.pop()
        for name in _included(current):
            for folder in (current.parent, *include_folders()):
                header = _header(folder, name)
                if header is None:
                    continue
                if header not in found:
                    found.add(header)
                    stack.append(header)
                break
    return frozenset(found)


@cache
def mentions(source: Path, name: str) -> bool:
    """Whether a source, or a header of this package that it includes, has this name in its text."""
    return any(_has_name(path, name) for path in (source, *local_includes(source)))


# Sources share most of their headers, so what is found in one is kept.


@cache
def _content(path: Path) -> bytes:
    return path.read_bytes()


@cache
def _included(path: Path) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(_content(path).decode()))


@cache
def _header(folder: Path, name: str) -> Path | None:
    header = folder / name
    return header.resolve() if header.is_file() else None


@cache
def _has_name(path: Path, name: str) -> bool:
    content, word = _content(path), name.encode()
    return word in content and re.search(rb"\b" + re.escape(word) + rb"\b", content) is not None


@cache
def content_hash(source: Path) -> str:
    """SHA-256 over a source and every header of this package that it includes."""
    digest = hashlib.sha256(_content(source))
    for header in sorted(local_includes(source)):
        digest.update(header.name.encode() + b"\0" + _content(header))
    return digest.hexdigest()


@cache
def headers_hash(groups: frozenset[str] = frozenset()) -> str:
    """SHA-256 over everything that generated code which calls the operators of `groups` may include."""
    digest = hashlib.sha256()
    root = source_root()
    module = root / "module"
    headers = [path for path in module.rglob("*.h") if path.parent not in (module / "declare", module / "ops")]
    headers += [module / "declare" / f"{group}.h" for group in groups]
    for header in sorted([*headers, *(root / "include").rglob("*.h")]):
        digest.update(str(header.relative_to(root)).encode() + b"\0" + header.read_bytes())
    return digest.hexdigest()


@cache
def kernels_version() -> str:
    """What decides how fast kernels are, but for the machine: a hash of their sources, and of what times them."""
    try:
        root = source_root()
    except FileNotFoundError:
        return __version__
    digest = hashlib.sha256()
    for file in sorted([*(root / "kernels").glob("*.[ch]*"), probe_source()]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
