"""Classes of processors, by what decides how long kernels take: documented facts, not measurements.

Rates are those of one core. Sources: AMD's Software Optimization Guides for the Zen 4 and Zen 5 microarchitectures,
Intel's Optimization Reference Manual, Arm's Software Optimization Guides for the Neoverse N1, N2 and V1. Clocks are
those that servers hold with all cores at work; what matters for a choice is how computing and moving data compare.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

_KB, _MB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Processor:
    """A class of processors.

    Attributes:
        name: of the class.
        lanes: float32 numbers of a vector.
        products: vectors of fused multiply-adds that a core begins in a cycle.
        clock: cycles a second.
        l2, l3: bytes: of a core, and of the cores that share it.
        l2_rate, l3_rate, memory_rate: bytes that a core reads in a cycle from there.
        memory_cores: so many cores reading at once have all that memory gives.
        half_products: products of bfloat16 for each of float32 in the same time, by instructions that targets have
            beyond their level (dot products, tiles).
    """

    name: str
    lanes: int
    products: float
    clock: float
    l2: int
    l3: int
    l2_rate: float = 32.0
    l3_rate: float = 12.0
    memory_rate: float = 5.0
    memory_cores: int = 6
    half_products: float = 1.0

    @property
    def peak(self) -> float:
        """Multiply-adds a second of one core, in float32."""
        return self.lanes * self.products * self.clock


# 512 bits are two halves of 256: one vector a cycle.
ZEN4 = Processor("zen4", 16, 1.0, 3.6e9, 1 * _MB, 32 * _MB, half_products=2.0)
# Full width in the server parts, also for loads.
ZEN5 = Processor("zen5", 16, 2.0, 3.8e9, 1 * _MB, 32 * _MB, l2_rate=64.0, half_products=2.0)
# Ice Lake and later: two units of full width, a slower cache that all cores share.
XEON = Processor("avx512", 16, 2.0, 2.8e9, 2 * _MB, 32 * _MB, l2_rate=48.0, l3_rate=8.0, half_products=2.0)
# Tiles of 16 x 64 bytes: 1024 multiply-adds of bfloat16 a cycle, of which packing leaves about half.
XEON_TILES = Processor("amx", 16, 2.0, 2.8e9, 2 * _MB, 32 * _MB, l2_rate=48.0, l3_rate=8.0, half_products=8.0)
# Haswell to Zen 3.
AVX2 = Processor("avx2", 8, 2.0, 3.2e9, 512 * _KB, 16 * _MB)
# No fused multiply-adds: a product and a sum begin in each cycle.
SSE4 = Processor("sse4", 4, 1.0, 2.8e9, 256 * _KB, 8 * _MB, l2_rate=16.0)
# Neoverse N1.
NEON = Processor("neon", 4, 2.0, 2.6e9, 1 * _MB, 32 * _MB, l2_rate=16.0)
# Neoverse N2 and V1: 16 multiply-adds of bfloat16 in the time of 4.
NEON_BF16 = replace(NEON, name="neon_bf16", half_products=4.0)
# Neoverse V1: two vectors of 256 bits begin in a cycle, or four of NEON's.
SVE256 = replace(NEON_BF16, name="sve256", lanes=8, l2_rate=32.0)

PROCESSORS = (ZEN4, ZEN5, XEON, XEON_TILES, AVX2, SSE4, NEON, NEON_BF16, SVE256)

# Which classes run an archive's module for a target: the choice for it is one for all of them.
_BY_TARGET: dict[str, tuple[Processor, ...]] = {
    "x86-64-v2": (SSE4,),
    "x86-64-v3": (AVX2,),
    "x86-64-v4": (ZEN4, ZEN5, XEON),
    "x86-64-v4-bf16": (ZEN4, ZEN5, XEON),
    "x86-64-v4-amx": (XEON_TILES,),
    **dict.fromkeys(("aarch64", "aarch64-dotprod"), (NEON,)),
    "aarch64-bf16": (NEON_BF16,),
    "aarch64-sve256": (SVE256,),
}


def processors_of(target: str) -> tuple[Processor, ...]:
    """The classes of processors that a target stands for."""
    return _BY_TARGET.get(target, (AVX2,))
