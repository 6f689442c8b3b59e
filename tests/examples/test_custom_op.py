import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aotpack

from .conftest import EXAMPLES, build, load_module, run

pytestmark = [pytest.mark.examples, pytest.mark.torch]

FOLDER = EXAMPLES / "custom_op"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch")
    return build(FOLDER / "model.py", tmp_path_factory.mktemp("custom_op") / "detections.aotpack")


def suppressed(boxes: np.ndarray, logits: np.ndarray, limit: float) -> list[int]:
    """Non-maximum suppression as it is defined, box by box."""
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    kept: list[int] = []
    for i in np.argsort(-logits.max(1), kind="stable"):
        for k in kept:
            width, height = np.minimum(corners[i, 2:], corners[k, 2:]) - np.maximum(corners[i, :2], corners[k, :2])
            shared = max(width, 0) * max(height, 0)
            both = boxes[i, 2:].prod() + boxes[k, 2:].prod() - shared
            if shared / both > limit:
                break
        else:
            kept.append(int(i))
    return kept


@pytest.mark.parametrize("count", [1, 2, 17, 400])
def test_detections_are_those_of_the_definition(archive: Path, count: int) -> None:
    boxes, logits = load_module(FOLDER / "detect.py").candidates(count, seed=count)
    kept = suppressed(boxes.astype(np.float64), logits, 0.5)
    found = aotpack.load(archive)(boxes, logits)
    np.testing.assert_array_equal(found["classes"], logits[kept].argmax(1))
    np.testing.assert_allclose(found["scores"], 1 / (1 + np.exp(-logits[kept].max(1).astype(np.float64))), rtol=1e-5)
    assert found["boxes"].shape == (len(kept), 4)
    np.testing.assert_allclose((found["boxes"][:, :2] + found["boxes"][:, 2:]) / 2, boxes[kept, :2], rtol=1e-4)


def test_results_do_not_depend_on_threads(archive: Path) -> None:
    model = aotpack.load(archive)
    arrays = load_module(FOLDER / "detect.py").candidates(9000, seed=1)
    found = [model.context(num_threads=threads)(*arrays)["boxes"] for threads in (1, 4)]
    np.testing.assert_array_equal(*found)


def test_the_commands_of_the_readme(archive: Path) -> None:
    assert "✓" in run(sys.executable, "-m", "aotpack.cli.app", "verify", archive)
    assert "boxes stay" in run(sys.executable, FOLDER / "detect.py", archive, "--boxes", "500")
    shown = run(sys.executable, "-m", "aotpack.cli.app", "inspect", archive, COLUMNS="200")
    assert "kernel vision::nms" in shown
    assert "nms.cpp sha256:" in shown


def test_the_archive_needs_no_libraries_of_its_own(archive: Path, tmp_path: Path) -> None:
    from aotpack.archive import ArchiveReader

    with ArchiveReader(archive) as reader:
        module = next(file.path for file in reader.manifest.files if file.path.startswith("modules/"))
        number = [file.path for file in reader.manifest.files].index(module)
        (tmp_path / "module.so").write_bytes(reader.read(number))
    undefined = run("nm", "-D", "--undefined-only", tmp_path / "module.so").split()
    assert not [name for name in undefined if "aotpack" in name or "aoti" in name or "vision" in name]
    defined = run("nm", "-D", "--defined-only", tmp_path / "module.so").split()
    assert defined[2::3] == ["aotpack_module_query"]
    needed = [line for line in run("readelf", "-d", tmp_path / "module.so").splitlines() if "NEEDED" in line]
    assert all(any(name in line for name in ("libc.", "libm.", "libgomp.", "libomp.", "ld-linux")) for line in needed)


def test_the_kernel_on_the_command_line(archive: Path, tmp_path: Path) -> None:
    source = (FOLDER / "model.py").read_text()
    registered = next(line for line in source.splitlines() if line.startswith("custom_kernel("))
    (tmp_path / "model.py").write_text(source.replace(registered, ""))
    (tmp_path / "other.cpp").write_text((FOLDER / "nms.cpp").read_text())
    command = [sys.executable, "-m", "aotpack.cli.app", "build", "model.py", "-o", "out.aotpack"]

    def attempt(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)

    done = attempt("--kernel", "vision::nms=other.cpp:vision::nms")
    assert done.returncode == 0, done.stderr
    boxes, logits = load_module(FOLDER / "detect.py").candidates(50, seed=0)
    expected = aotpack.load(archive)(boxes, logits)["boxes"]
    np.testing.assert_array_equal(aotpack.load(tmp_path / "out.aotpack")(boxes, logits)["boxes"], expected)
    refused = attempt("--kernel", "nms=other.cpp")
    assert refused.returncode == 2
    assert "namespace::operator=file.cpp" in refused.stderr
    missing = attempt("--kernel", "vision::nms=none.cpp")
    assert missing.returncode == 1
    assert "none.cpp" in missing.stderr


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    text = (EXAMPLES.parent / "docs" / "custom_ops.md").read_text()
    python, cpp = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "cpp"))
    assert python is not None
    assert cpp is not None
    (tmp_path / "model.py").write_text(python[1])
    (tmp_path / "rms_norm.cpp").write_text(cpp[1])
    archive = build(tmp_path / "model.py", tmp_path / "model.aotpack")
    assert "✓" in run(sys.executable, "-m", "aotpack.cli.app", "verify", archive)
    x = np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) + x
    np.testing.assert_allclose(aotpack.load(archive)(x), expected, rtol=1e-5, atol=1e-6)
