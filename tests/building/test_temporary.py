"""Private temporary folders: for one process, and gone after it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aotpack.building.temporary import PREFIX, private_folder, sweep


def test_private_and_removed(tmp_path: Path) -> None:
    with private_folder(tmp_path) as folder, private_folder(tmp_path) as other:
        assert folder != other
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        (folder / "inner").mkdir()
        (folder / "inner" / "file").write_text("text")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), private_folder(tmp_path):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_where_the_system_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_folder() as folder:
        assert folder.parent == tmp_path


def test_folders_of_dead_processes_alone_are_swept(tmp_path: Path) -> None:
    script = """
import sys
from aotpack.building.temporary import private_folder
with private_folder(sys.argv[1]) as folder:
    (folder / "file").write_text("text")
    print(folder, flush=True)
    sys.stdin.readline()
"""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    folders = []
    for process in processes:
        assert process.stdout is not None
        folders.append(Path(process.stdout.readline().strip()))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("text")
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    (tmp_path / f"{PREFIX}file").write_text("text")
    (tmp_path / "other").mkdir()
    with private_folder(tmp_path) as own:
        assert sweep(tmp_path) == 0
        processes[0].kill()
        processes[0].communicate()
        assert sweep(tmp_path) == 1
        assert not folders[0].exists()
        assert folders[1].exists()
        assert own.exists()
    processes[1].communicate("\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{PREFIX}file", f"{PREFIX}link", "elsewhere", "other"]
    assert (elsewhere / "file").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of another user")
def test_folders_of_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / f"{PREFIX}other"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    assert sweep(tmp_path) == 0
    assert folder.exists()
    assert sweep(tmp_path / "absent") == 0
