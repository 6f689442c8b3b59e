"""networkx is imported when AOTAutograd's partitioners need it, and is the same module then."""

from __future__ import annotations

import subprocess
import sys

_LOADED = """
import sys
from aotpack.export.torch_compat.late_networkx import LateModule, load_partitioners
load_partitioners()
assert "networkx" not in sys.modules
from torch._functorch._activation_checkpointing import graph_info_provider
from torch._functorch import partitioners
assert isinstance(graph_info_provider.nx, LateModule)
made = graph_info_provider.nx.DiGraph()
import networkx
assert type(made) is networkx.DiGraph and not isinstance(networkx, LateModule)
load_partitioners()
assert sys.modules["networkx"] is networkx
"""

_OTHERS = """
import sys
from aotpack.export.torch_compat.late_networkx import LateModule
sys.modules["networkx"] = LateModule()
import networkx
graph = networkx.Graph()
assert type(graph).__module__.startswith("networkx")
import networkx
assert not isinstance(networkx, LateModule)
"""


def test_it_is_imported_when_it_is_needed() -> None:
    subprocess.run([sys.executable, "-c", _LOADED], check=True)


def test_others_get_the_module_itself_meanwhile() -> None:
    subprocess.run([sys.executable, "-c", _OTHERS], check=True)
