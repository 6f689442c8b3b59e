import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aotpack

from .conftest import EXAMPLES, load_module, run

pytestmark = [pytest.mark.examples, pytest.mark.torch]


def test_logits_match_eager(digits: Path) -> None:
    heldout = np.load(digits / "heldout.npz")
    logits = np.asarray(aotpack.load(str(digits / "digits.aotpack"))(heldout["images"]))
    assert logits.shape == (450, 10)
    assert logits.dtype == np.float32
    assert np.abs(logits - heldout["eager"]).max() <= 1e-4 * np.abs(heldout["eager"]).max()
    assert (logits.argmax(1) == heldout["labels"]).mean() > 0.97


@pytest.mark.parametrize("batch", [1, 2, 3, 450])
def test_every_batch_size_gives_the_same_rows(digits: Path, batch: int) -> None:
    heldout = np.load(digits / "heldout.npz")
    logits = np.asarray(aotpack.load(str(digits / "digits.aotpack"))(heldout["images"][:batch]))
    scale = np.abs(heldout["eager"]).max()
    np.testing.assert_allclose(logits, heldout["eager"][:batch], rtol=0, atol=1e-4 * scale)


def test_a_batch_out_of_range_is_named(digits: Path) -> None:
    model = aotpack.load(str(digits / "digits.aotpack"))
    with pytest.raises(aotpack.errors.InputError, match=r"batch.*1797"):
        model(np.zeros((1798, 1, 8, 8), np.float32))


def test_predict_runs_without_torch(digits: Path) -> None:
    predict = EXAMPLES / "digits" / "predict.py"
    answer = json.loads(run(sys.executable, predict, digits / "digits.aotpack", "--json"))
    eager = np.load(digits / "heldout.npz")["eager"].argmax(1)
    assert answer["predictions"] == eager.tolist()
    assert 0 < answer["start_s"] < 60
    shown = run(sys.executable, predict, digits / "digits.aotpack")
    assert f"{answer['right']} of 450" in shown
    assert "█" in shown
    assert "-> " in shown


def test_predict_refuses_torch() -> None:
    """The proof that predict.py gives is worth something only if its blocker blocks."""
    code = (
        "import runpy, sys; sys.argv = ['predict.py'];"
        f"module = runpy.run_path({str(EXAMPLES / 'digits' / 'predict.py')!r});"
        "print(module['torch_can_be_imported']())"
    )
    assert run(sys.executable, "-c", code).strip() == "False"


def test_art_shows_ink_where_the_image_has_it() -> None:
    # predict.py installs its blocker when imported; this process wants torch later.
    blockers = list(sys.meta_path)
    try:
        art = load_module(EXAMPLES / "digits" / "predict.py").art
    finally:
        sys.meta_path[:] = blockers
    image = np.zeros((8, 8), np.float32)
    image[3, 2:5] = 1.0
    lines = art(image)
    assert [len(line) for line in lines] == [16] * 8
    assert lines[3] == "    ██████      "
    assert not any(line.strip() for line in lines[:3] + lines[4:])


def test_model_says_when_it_was_not_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("DIGITS_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"train\.py"):
        load_module(EXAMPLES / "digits" / "model.py").model()


@pytest.fixture(scope="module")
def programs(digits: Path) -> Path:
    """The folder with the programs of examples/cpp, built by the demo against the installed runtime."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    return digits / "cpp"


@pytest.mark.parametrize("program", ["terse", "explained"])
def test_cpp_classifies_like_eager(digits: Path, programs: Path, program: str) -> None:
    output = run(programs / program, digits / "digits.aotpack", digits / "heldout.f32")
    eager = np.load(digits / "heldout.npz")["eager"].argmax(1)
    assert [int(line) for line in output.split()] == eager.tolist()


def test_cpp_reports_a_missing_archive(digits: Path, programs: Path, tmp_path: Path) -> None:
    command = [programs / "explained", tmp_path / "none.aotpack", digits / "heldout.f32"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "none.aotpack" in done.stderr


def test_cpp_reports_too_many_digits(digits: Path, programs: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.f32"
    np.zeros((1798, 64), np.float32).tofile(many)
    command = [programs / "explained", digits / "digits.aotpack", many]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "batch" in done.stderr
    assert "1797" in done.stderr


def test_demo_goes_the_whole_way(digits: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    output = (digits / "demo.txt").read_text()
    accuracies = [line for line in output.splitlines() if "/450" in line]
    assert len(accuracies) == 3
    assert len({line.split("│")[2].strip() for line in accuracies}) == 1
