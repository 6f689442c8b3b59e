"""Reads the cubins and modules of an archive: what the host code passes, and what the kernels expect."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotpack.archive import ArchiveReader, Module

_EM_CUDA = 190
_SHT_STRTAB, _SHT_CUDA_INFO = 3, 0x70000000
# Instructions, by their lowest 12 bits.
_INSTRUCTION = 16
_ACQBULK = 0x82E
# BRA and EXIT; LD, LDG, ST, STG, ATOM, RED, ATOMG, LDGSTS and UTMALDG, which access global memory.
_BRA, _EXIT = 0x947, 0x94D
_ACCESSES = {0x980, 0x981, 0x985, 0x986, 0x38A, 0x98A, 0x38B, 0x98B, 0x98E, 0x3A8, 0x9A8, 0x3A9, 0x9A9, 0xFAE, 0x5B4}
# Of `.nv.info.<kernel>`: an attribute whose value is two bytes in place of a size, and one whose bytes are the number
# of a symbol, where arguments begin in their memory, and their size.
_CBANK_PARAM_SIZE = 0x19
_PARAM_CBANK = 0x0A
_IMPORTS = ("alloc", "free", "fail", "seed", "launch", "copy", "upload", "download", "fill")


@dataclass(frozen=True)
class Cubin:
    """Device code: the `sm_` number that it is for, and by kernel the bytes of its arguments, where they begin, and its
    instructions."""

    architecture: int
    arguments: dict[str, int]
    begins: dict[str, int]
    instructions: dict[str, list[int]]

    @property
    def waits(self) -> bool:
        """Whether its kernel waits for those before it: on every path, and before it accesses memory."""
        (found,) = self.instructions.values()
        # Kernels end with a branch to themselves: instructions are where they are looked for.
        assert _BRA in found
        return _ACQBULK in found and not set(found[: found.index(_ACQBULK)]) & {_BRA, _EXIT, *_ACCESSES}


def read_cubin(data: bytes) -> Cubin:
    """Parses an ELF file of device code."""
    assert data[:5] == b"\x7fELF\x02"
    machine, flags = struct.unpack_from("<H", data, 18)[0], struct.unpack_from("<I", data, 48)[0]
    assert machine == _EM_CUDA
    # The ABI of ELF files for CUDA changed its place of the number with version 8.
    version = data[8]
    architecture = (flags >> 8) & 0xFF if version >= 8 else flags & 0xFF
    offset, size, count, names = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HHH", data, 58))
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * size) for i in range(count)]
    strings = sections[names]
    arguments, begins, instructions = {}, {}, {}
    for section in sections:
        start = strings[4] + section[0]
        name = data[start : data.index(b"\0", start)].decode()
        if name.startswith(".nv.info.") and section[1] == _SHT_CUDA_INFO:
            kernel = name.removeprefix(".nv.info.")
            found = _attributes(data[section[4] : section[4] + section[5]])
            arguments[kernel] = found[_CBANK_PARAM_SIZE]
            begins[kernel] = struct.unpack_from("<IHH", found[_PARAM_CBANK])[1] if _PARAM_CBANK in found else 0
        if name.startswith(".text."):
            places = range(section[4], section[4] + section[5], _INSTRUCTION)
            words = [int(struct.unpack_from("<H", data, place)[0]) for place in places]
            instructions[name.removeprefix(".text.")] = [word & 0xFFF for word in words]
    return Cubin(architecture, arguments, begins, instructions)


def _attributes(info: bytes) -> dict[int, Any]:
    """By number: two bytes as a number, or the bytes that follow."""
    position, found = 0, {}
    while position < len(info):
        form, attribute, value = struct.unpack_from("<BBH", info, position)
        position += 4
        found[attribute] = info[position : position + value] if form == 4 else int(value)
        position += value if form == 4 else 0
    return found


def module_of(path: Path, target: str) -> tuple[Module, dict[str, bytes], bytes]:
    """The only module for a target: its record, its assets, its shared object."""
    with ArchiveReader(path) as reader:
        reader.verify()
        (module,) = (m for e in reader.manifest.entries for v in e.variants for m in v.modules if m.target == target)
        assets = {asset.name: reader.read(asset.file, asset.offset, asset.nbytes) for asset in module.assets}
        code = reader.read(module.file)
    return module, assets, code


def check_module(path: Path, target: str) -> None:
    """Every kernel that the module launches is an asset for the target, under the name that the host code has."""
    module, assets, code = module_of(path, target)
    wanted = int(target.rpartition("_")[2])
    assert module.features in (("async",), ("async", "host_steps"))
    assert module.imports in (_IMPORTS, (*_IMPORTS, "tensor_map"), (*_IMPORTS, "tensor_map", "provide"))
    cubins = {name: data for name, data in assets.items() if name.endswith(".cubin")}
    assert {name.partition(".")[0] for name in assets} == {name.partition(".")[0] for name in cubins}
    launched = {kernel.name.partition(",")[0] for kernel in module.kernels if not kernel.name.endswith(" on the host")}
    assert launched <= {name.removesuffix(".cubin") for name in cubins}
    for data in cubins.values():
        cubin = read_cubin(data)
        assert cubin.architecture == wanted
        assert cubin.waits == (wanted >= 90)
        (entry,) = cubin.arguments
        assert entry.encode() + b"\0" in code
    for name in assets.keys() - cubins.keys():
        assert wanted < 90
        text = assets[name]
        assert text.endswith(b"\0")
        assert re.search(rf"^\.target sm_{wanted}$", text[:-1].decode(), re.MULTILINE)
