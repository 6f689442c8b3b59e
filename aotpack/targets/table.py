"""Every target: what it is called, what runs it, and how code for it is generated and compiled.

The only table of targets. `csrc/runtime` has its own list of the CPUs that it knows and of the processor features that
it asks for; `tests/targets/test_table.py` compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aotpack.targets.gpus import GPUS, GpuInfo


@dataclass(frozen=True, slots=True)
class Extension:
    """Instructions beyond a level. Only sources that ask for them by their macro are compiled with them, so that the
    objects of all others are the level's own.

    Attributes:
        macro: what compilers define where the instructions may be used.
        flags: for GCC and clang.
        half: the half precision without which nothing asks for them, if any.
    """

    macro: str
    flags: tuple[str, ...]
    half: str | None = None


_BF16_DOT = Extension("__AVX512BF16__", ("-mavx512bf16",), half="bf16")
_BF16_TILES = Extension("__AMX_BF16__", ("-mamx-tile", "-mamx-bf16"), half="bf16")
_INT8_TILES = Extension("__AMX_INT8__", ("-mamx-tile", "-mamx-int8"))
_ARM_DOTPROD = "armv8.2-a+dotprod"
_ARM_I8MM = f"{_ARM_DOTPROD}+i8mm"
_ARM_BF16 = Extension("__ARM_FEATURE_BF16_VECTOR_ARITHMETIC", (f"-march={_ARM_I8MM}+bf16",), half="bf16")


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """One target.

    Attributes:
        name: as users and archives write it.
        backend: the folder of `aotpack/export/backends` that lowers and compiles for it.
        arch: the architecture; for GPUs `cuda`.
        level: rank within the architecture. A CPU of a higher one runs all that the lower ones run; for GPUs it is the
            number that `sm_` has.
        cpu_flags: what `flags` (`Features` on ARM) of /proc/cpuinfo lists, beyond those of the lower levels.
        sve_bits: the length that a process's SVE vectors must have, neither more nor less; None for any, and for none.
        march: flags for GCC and clang that choose the instruction set, for GPUs that of the code on the host; empty
            where this version compiles nothing.
        extensions: instructions that our own kernels use beside it.
        vector_isa: TorchInductor's class of the instruction set, and its vectors' bits; 0 bits for scalar code.
        torch_capability: the name by which torch's vector headers know the instruction set.
        gpu: what is assumed of the GPU; None for CPUs.
        companion: for GPUs, the CPU target of modules that run on the host beside those of the GPU.
    """

    name: str
    backend: str
    arch: str
    level: int
    cpu_flags: frozenset[str] = frozenset()
    sve_bits: int | None = None
    march: tuple[str, ...] = ()
    extensions: tuple[Extension, ...] = ()
    vector_isa: tuple[str, int] | None = None
    torch_capability: str | None = None
    gpu: GpuInfo | None = None
    companion: str | None = None

    @property
    def buildable(self) -> bool:
        """Whether this version builds archives for it."""
        return bool(self.march)


_V4 = TargetInfo(
    "x86-64-v4",
    backend="cpu",
    arch="x86-64",
    level=4,
    cpu_flags=frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
    march=("-march=x86-64-v4", "-mprefer-vector-width=512"),
    vector_isa=("VecAVX512", 512),
    torch_capability="AVX512",
)

_NEON = TargetInfo(
    "aarch64",
    backend="cpu",
    arch="aarch64",
    level=1,
    march=("-march=armv8-a",),
    vector_isa=("VecNEON", 128),
    torch_capability="NEON",
)

# Levels of x86-64: the psABI, section 3.1.1.
TABLE: tuple[TargetInfo, ...] = (
    TargetInfo(
        "x86-64-v2",
        backend="cpu",
        arch="x86-64",
        level=2,
        cpu_flags=frozenset(["pni", "ssse3", "cx16", "sse4_1", "sse4_2", "popcnt", "lahf_lm"]),
        march=("-march=x86-64-v2",),
        # Torch has no vectors for it: generated loops are scalar, and the compiler vectorizes what it can.
        vector_isa=("InvalidVecISA", 0),
        torch_capability="DEFAULT",
    ),
    TargetInfo(
        "x86-64-v3",
        backend="cpu",
        arch="x86-64",
        level=3,
        cpu_flags=frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
        march=("-march=x86-64-v3",),
        vector_isa=("VecAVX2", 256),
        torch_capability="AVX2",
    ),
    _V4,
    # Two more, which are no levels of the psABI: what computes in bf16 and int8.
    replace(
        _V4,
        name="x86-64-v4-bf16",
        level=5,
        cpu_flags=frozenset(["avx512_bf16", "avx512_vnni"]),
        extensions=(_BF16_DOT,),
    ),
    replace(
        _V4,
        name="x86-64-v4-amx",
        level=6,
        cpu_flags=frozenset(["amx_tile", "amx_bf16", "amx_int8"]),
        extensions=(_BF16_DOT, _BF16_TILES, _INT8_TILES),
    ),
    _NEON,
    # ARM's names of features, on top of ARMv8.2-A.
    replace(
        _NEON,
        name="aarch64-dotprod",
        level=2,
        cpu_flags=frozenset(["crc32", "atomics", "asimdrdm", "asimddp"]),
        march=(f"-march={_ARM_DOTPROD}",),
    ),
    replace(
        _NEON,
        name="aarch64-bf16",
        level=3,
        cpu_flags=frozenset(["i8mm", "bf16"]),
        march=(f"-march={_ARM_I8MM}",),
        extensions=(_ARM_BF16,),
    ),
    # Compilers fix the length of SVE's vectors. Code for 256 bits is wrong where they have another, without a sign of
    # it: Neoverse N2 and V2 have 128, which NEON has, too.
    replace(
        _NEON,
        name="aarch64-sve256",
        level=4,
        cpu_flags=frozenset(["fphp", "asimdhp", "sve", "svei8mm", "svebf16"]),
        sve_bits=256,
        march=(f"-march={_ARM_I8MM}+bf16+sve", "-msve-vector-bits=256"),
        vector_isa=("VecSVE", 256),
        torch_capability="SVE256",
    ),
    *(
        TargetInfo(
            name,
            backend="cuda",
            arch="cuda",
            level=gpu.architecture,
            march=("-march=x86-64-v2",),
            gpu=gpu,
            companion="x86-64-v3",
        )
        for name, gpu in GPUS.items()
    ),
)

BY_NAME = {info.name: info for info in TABLE}
