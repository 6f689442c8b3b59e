"""Kernels of the modules in tests/cpp/modules as PTX, and as cubins where ptxas is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_HEAD = """.version 7.0
.target {target}
.address_size 64
"""

# y[i] = scale * x[i] + w[i % width]
_AFFINE = """
.visible .entry affine(.param .u64 y, .param .u64 x, .param .u64 w, .param .u32 width, .param .u32 count,
                       .param .f32 scale)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %d<8>;
  .reg .f32 %f<5>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r4, [count];
  setp.ge.u32 %p, %r1, %r4;
  @%p bra END;
  ld.param.u32 %r5, [width];
  rem.u32 %r5, %r1, %r5;
  ld.param.u64 %d1, [y];
  ld.param.u64 %d2, [x];
  ld.param.u64 %d3, [w];
  mul.wide.u32 %d4, %r1, 4;
  mul.wide.u32 %d5, %r5, 4;
  add.u64 %d1, %d1, %d4;
  add.u64 %d2, %d2, %d4;
  add.u64 %d3, %d3, %d5;
  ld.param.f32 %f1, [scale];
  ld.global.f32 %f2, [%d2];
  ld.global.f32 %f3, [%d3];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%d1], %f4;
END:
  ret;
}
"""

# x[i] += amount
_INCREMENT = """
.visible .entry increment(.param .u64 x, .param .u32 count, .param .f32 amount)
{
  .reg .pred %p;
  .reg .b32 %r<3>;
  .reg .b64 %d<3>;
  .reg .f32 %f<3>;
  mov.u32 %r1, %tid.x;
  ld.param.u32 %r2, [count];
  setp.ge.u32 %p, %r1, %r2;
  @%p bra END;
  ld.param.u64 %d1, [x];
  mul.wide.u32 %d2, %r1, 4;
  add.u64 %d1, %d1, %d2;
  ld.param.f32 %f1, [amount];
  ld.global.f32 %f2, [%d1];
  add.f32 %f2, %f2, %f1;
  st.global.f32 [%d1], %f2;
END:
  ret;
}
"""

_SOURCES = {"affine": _AFFINE, "increment": _INCREMENT}


def ptx(kernel: str, target: str = "sm_80") -> bytes:
    """The kernel for a device of that architecture or a later one."""
    return (_HEAD.format(target=target) + _SOURCES[kernel]).encode()


def find_ptxas() -> str | None:
    """That of the PATH, or the one that triton brings."""
    if found := shutil.which("ptxas"):
        return found
    try:
        import triton
    except ImportError:
        return None
    bundled = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    return str(bundled) if bundled.exists() else None


def cubin(kernel: str, architecture: str, folder: Path) -> bytes:
    """The kernel as machine code."""
    ptxas = find_ptxas()
    assert ptxas is not None
    source, output = folder / f"{kernel}.ptx", folder / f"{kernel}.cubin"
    source.write_bytes(ptx(kernel))
    subprocess.run([ptxas, f"-arch={architecture}", str(source), "-o", str(output)], check=True)
    return output.read_bytes()
