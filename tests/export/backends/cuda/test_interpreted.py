"""Archives for GPUs give eager's answers, as far as Triton's interpreter can tell (tests/support/interpreted_gpu)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.export.backends.cuda.conftest import Verify
from tests.gpu.build_archives import build
from tests.support.interpreted_gpu.recording import recorded_kernels

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

# Of tests/gpu: kernels of each kind, calls with state, literals and numbers, and steps on the host in between.
NAMES = (
    *("mlp-bf16-dynamic", "attention-dynamic", "decode", "complex-products", "state", "number", "device-dependent"),
    *("items", "int8", "lstm-batch", "host-strides", "host-gradients", "joint-convolutions"),
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    with recorded_kernels(kernels):
        assert build(folder, NAMES, ["cuda-sm_90"]) == 0
    return folder


def test_archives_answer_as_eager_does(archives: Path, kernels: Path, verify: Verify) -> None:
    paths = sorted(archives.glob("*.aotpack"))
    assert len(paths) == len(NAMES)
    text = verify(kernels, *paths)
    assert text.count(" launches in ") == len(NAMES)
    assert " 0 launches in " not in text


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("tl.store(out_ptr0 + (x0), ", "tl.store(out_ptr0 + (x0), 1.01 * ", "differs"),
        ("tl.store(out_ptr0 + (x0), ", "tl.store(out_ptr0 + (x0 + 1000000), ", "(700)"),
        ("xmask = xindex < xnumel", 'xmask = xindex < xnumel; tl.device_assert(xindex < 3, "three")', "(710)"),
    ],
    ids=["value", "address", "assertion"],
)
def test_wrong_kernels_are_found(
    archives: Path, kernels: Path, verify: Verify, tmp_path: Path, before: str, after: str, error: str
) -> None:
    """The tool itself: kernels that err in their source."""
    shutil.copytree(kernels, tmp_path / "kernels")
    changed = 0
    for path in (tmp_path / "kernels").iterdir():
        record = json.loads(path.read_text())
        changed += before in record["source"]
        path.write_text(json.dumps({**record, "source": record["source"].replace(before, after)}))
    assert changed
    assert error in verify(tmp_path / "kernels", archives / "number.aotpack", code=1)
