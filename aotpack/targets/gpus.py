"""What code generation assumes of the GPU behind each CUDA target.

Limits of a compute capability are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability". Numbers of multiprocessors and sizes of the L2 cache differ between GPUs of one capability: they are those
of the model that `name` says, from its data sheet. They choose between kernels and tiles; every GPU of the capability
runs the result.
"""

from __future__ import annotations

from dataclasses import dataclass

_KIB = 1 << 10
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuInfo:
    """A GPU as code generation sees it.

    Attributes:
        name: the model.
        capability: the compute capability (major, minor).
        multiprocessors: streaming multiprocessors.
        shared_per_multiprocessor: bytes of shared memory of one multiprocessor.
        shared_per_block: bytes of shared memory that one block may have at most, after opting in.
        l2_bytes: bytes of L2 cache.
        memory_bytes: bytes of device memory.
        threads_per_multiprocessor: resident threads of one multiprocessor.
        portable: whether newer GPUs compile the PTX of its kernels. Triton compiles for `a` variants from 9.0 on, whose
            PTX runs on that capability only.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    shared_per_multiprocessor: int
    shared_per_block: int
    l2_bytes: int
    memory_bytes: int
    threads_per_multiprocessor: int
    portable: bool

    # The same for every capability of this table.
    registers_per_multiprocessor = 65536
    shared_per_block_default = 48 * _KIB
    threads_per_block = 1024
    warp = 32

    @property
    def architecture(self) -> int:
        """As `sm_` names it: 90 for 9.0."""
        return self.capability[0] * 10 + self.capability[1]


GPUS: dict[str, GpuInfo] = {
    # NVIDIA A100 Tensor Core GPU Architecture, table 4.
    "cuda-sm_80": GpuInfo("NVIDIA A100", (8, 0), 108, 164 * _KIB, 163 * _KIB, 40 * _MIB, 80 * 10**9, 2048, True),
    # NVIDIA A10 data sheet; NVIDIA Ampere GA102 GPU Architecture.
    "cuda-sm_86": GpuInfo("NVIDIA A10", (8, 6), 72, 100 * _KIB, 99 * _KIB, 6 * _MIB, 24 * 10**9, 1536, True),
    # NVIDIA Ada GPU Architecture, appendix A (L40S: 142 multiprocessors, 96 MB).
    "cuda-sm_89": GpuInfo("NVIDIA L40S", (8, 9), 142, 100 * _KIB, 99 * _KIB, 96 * _MIB, 48 * 10**9, 1536, True),
    # NVIDIA H100 Tensor Core GPU Architecture, table 3 (SXM5).
    "cuda-sm_90": GpuInfo("NVIDIA H100", (9, 0), 132, 228 * _KIB, 227 * _KIB, 50 * _MIB, 80 * 10**9, 2048, False),
    # NVIDIA Blackwell Architecture Technical Brief (B200).
    "cuda-sm_100": GpuInfo("NVIDIA B200", (10, 0), 148, 228 * _KIB, 227 * _KIB, 126 * _MIB, 180 * 10**9, 2048, False),
    # NVIDIA RTX Blackwell GPU Architecture, appendix A (RTX 5090).
    "cuda-sm_120": GpuInfo(
        "NVIDIA GeForce RTX 5090", (12, 0), 170, 100 * _KIB, 99 * _KIB, 96 * _MIB, 32 * 10**9, 1536, False
    ),
}
