"""What tuning found on this machine, in the build cache: the same shapes need no measuring in other archives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from aotpack.building.cache import BuildCache, digest_of
from aotpack.building.native_sources import kernels_version
from aotpack.cli.tuning_search import Known

if TYPE_CHECKING:
    from aotpack.cli.tuning_run import Site

_SUFFIX = ".tuning.json"


class TuningCache:
    """Ways of sites, on a processor, with a number of threads. Of no use to other versions of the kernels."""

    def __init__(self, processor: str, cache: BuildCache | None = None) -> None:
        self._processor = processor
        self._cache = cache or BuildCache()

    def find(self, sites: Mapping[int, Site], threads: int) -> dict[int, Known]:
        """What is known of these sites, by number."""
        found = {}
        for number, site in sites.items():
            path = self._cache.find(self._key(site, threads), _SUFFIX)
            if path is not None:
                value = json.loads(path.read_text())
                found[number] = Known(int(value["choice"]), float(value["speedup"]))
        return found

    def store(self, site: Site, threads: int, known: Known) -> None:
        """Notes what was found of a site; what was known before stays where it is the same way."""
        key = self._key(site, threads)
        if (before := self.find({site.number: site}, threads).get(site.number)) is not None:
            if before.choice == known.choice:
                return
            self._cache.path(key, _SUFFIX).unlink(missing_ok=True)
        text = json.dumps(known._asdict())

        def write(path: Path) -> None:
            path.write_text(text)

        self._cache.aside(key, _SUFFIX, write)

    def _key(self, site: Site, threads: int) -> str:
        about = (site.target, self._processor, str(threads), f"{site.number:016x}")
        return digest_of(("tuning 1", kernels_version(), *about))
