"""The processor of this host, by the name that tuned archives have for it (docs/format.md). Needs no native module."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_MIDR = Path("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1")


@cache
def host_processor() -> str:
    """`vendor-family-model-stepping`, or `aarch64-` and the main ID register; "" where the system does not tell.

    The same as csrc/runtime/host/processor.cpp reads of the processor itself.
    """
    try:
        if _MIDR.is_file():
            return f"aarch64-{int(_MIDR.read_text(), 16):#x}"
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except (OSError, ValueError):
        return ""
    found = [
        re.search(rf"^{name}\s*: (.+)$", text, re.MULTILINE)
        for name in ("vendor_id", "cpu family", "model", "stepping")
    ]
    return "-".join(match[1].strip() for match in found if match) if all(found) else ""
