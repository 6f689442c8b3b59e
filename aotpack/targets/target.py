"""A target by name: parsing, the best target of this host, and the modules that a host runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from aotpack.errors import UnsupportedTargetError
from aotpack.targets.table import BY_NAME, TABLE, TargetInfo

# What archives can be built for by this version.
BUILDABLE = tuple(info.name for info in TABLE if info.buildable)

# Names of several targets at once.
GROUPS = {"cuda": tuple(info.name for info in TABLE if info.backend == "cuda")}


@dataclass(frozen=True, slots=True)
class Target:
    """A kind of machine that modules are compiled for: `x86-64-v2`, `x86-64-v3`, `aarch64`, `cuda-sm_90`."""

    name: str

    def __post_init__(self) -> None:
        if self.name not in self.known():
            raise UnsupportedTargetError(
                f"unknown target {self.name!r}", hint=f"supported targets are {', '.join(BUILDABLE)}"
            )

    @property
    def info(self) -> TargetInfo:
        """Its row in the table."""
        return BY_NAME[self.name]

    @staticmethod
    def known() -> tuple[str, ...]:
        """The names of all targets."""
        return tuple(info.name for info in TABLE)

    @classmethod
    def parse(cls, text: str) -> Target:
        """The target with this name; `native` is the best target of this host.

        Raises:
            UnsupportedTargetError: the target is unknown, or this host is not supported.
        """
        return cls.host() if text == "native" else cls(text)

    @classmethod
    def buildable(cls, text: str) -> Target:
        """The target with this name, if archives can be built for it; `native` is the best target of this host.

        Raises:
            UnsupportedTargetError: the target is unknown, or building for it is not supported.
        """
        target = cls.parse(text)
        if target.name not in BUILDABLE:
            raise UnsupportedTargetError(
                f"building for the target {target.name!r} is not supported",
                hint=f"supported targets are {', '.join(BUILDABLE)}",
            )
        return target

    @classmethod
    def all_buildable(cls, names: Iterable[str]) -> tuple[Target, ...]:
        """The targets with these names, each once, in their order; `cuda` is every CUDA target.

        Raises:
            UnsupportedTargetError: a target is unknown, or building for it is not supported.
        """
        expanded = (name for text in names for name in GROUPS.get(text, (text,)))
        return tuple(dict.fromkeys(cls.buildable(name) for name in expanded))

    @classmethod
    def host(cls) -> Target:
        """The best target that this host supports.

        Raises:
            UnsupportedTargetError: this host runs none of them.
        """
        import platform

        machine = platform.machine().lower()
        arch = {"arm64": "aarch64", "x86_64": "x86-64", "amd64": "x86-64"}.get(machine, machine)
        if arch in ("aarch64", "x86-64"):
            flags = _cpu_flags()
            sve_bits = _sve_bits() if "sve" in flags else None
            best = None
            for info in TABLE:
                if info.arch == arch:
                    if not flags >= info.cpu_flags or info.sve_bits not in (None, sve_bits):
                        break
                    best = info.name
            if best is not None:
                return cls(best)
            raise UnsupportedTargetError("this processor lacks SSE4.2, which the target x86-64-v2 requires")
        raise UnsupportedTargetError(f"the machine {machine!r} is not supported")

    @property
    def arch(self) -> str:
        """`x86-64`, `aarch64` or `cuda`."""
        return self.info.arch

    @property
    def level(self) -> int:
        """The rank within the architecture: see `TargetInfo`."""
        return self.info.level

    def runs_on(self, host: Target) -> bool:
        """Whether a module for this target runs on `host`.

        A GPU runs cubins of its own major version up to its minor one, where these are not for an `a` variant; then it
        also compiles the PTX of older targets.
        """
        if self.arch != host.arch:
            return False
        if self.info.gpu is not None and not self.info.gpu.portable:
            return self.level == host.level
        return self.level <= host.level

    def __str__(self) -> str:
        return self.name


def _cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    return frozenset(value.split())
    except OSError:
        pass
    return frozenset()


def _sve_bits() -> int | None:
    """The length of this thread's SVE vectors; None if it has none."""
    import ctypes

    # PR_SVE_GET_VL of <linux/prctl.h>: bytes in the lower half, flags above; -1 without SVE.
    found = ctypes.CDLL(None).prctl(51, 0, 0, 0, 0)
    return None if found < 0 else 8 * (found & 0xFFFF)
