"""Where the build cache lies, and who may write to it."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import pytest

from aotpack.building.cache import BuildCache
from aotpack.building.folders import default_folder, open_folder, own_part
from aotpack.errors import BuildError

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AOTPACK_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AOTPACK_CACHE_DIR", str(tmp_path / "a"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    assert default_folder() == tmp_path / "a"
    monkeypatch.delenv("AOTPACK_CACHE_DIR")
    assert default_folder() == tmp_path / "b" / "aotpack"
    monkeypatch.setenv("HOME", str(tmp_path))
    for invalid in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", invalid)
        assert default_folder() == tmp_path / ".cache" / "aotpack"


def test_relative_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AOTPACK_CACHE_DIR", "some/cache")
    path = BuildCache().get("ab" * 32, ".o", lambda path: path.write_text("x") and None)
    assert path.is_relative_to(tmp_path / "some" / "cache")
    assert BuildCache(Path("some/cache")).root == tmp_path / "some" / "cache"


@pytest.mark.parametrize("home", [None, "", "relative", "file"])
def test_no_home(home: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_entry(number: int) -> object:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", no_entry)
    (tmp_path / "file").write_text("")
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
    else:
        monkeypatch.setenv("HOME", home if home != "file" else str(tmp_path / "file"))
    expected = tmp_path / "temporary" / f"aotpack-cache-{os.geteuid()}"
    assert BuildCache().root == expected == default_folder()


def test_private(tmp_path: Path) -> None:
    root, own = open_folder(tmp_path / "new" / "cache")
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert own == own_part(root)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    # One that was opened to others is closed again.
    own.chmod(0o777)
    open_folder(root)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_a_folder_in_which_everybody_can_replace_files(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(BuildError, match="every user can replace") as caught:
        open_folder(tmp_path)
    assert "chmod +t" in str(caught.value.hint)
    tmp_path.chmod(0o1777)
    open_folder(tmp_path)


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_part_that_is_no_folder(what: str, tmp_path: Path) -> None:
    part = own_part(tmp_path / "cache")
    part.parent.mkdir()
    if what == "file":
        part.write_text("")
    else:
        (tmp_path / "elsewhere").mkdir()
        part.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BuildError, match="belongs to you"):
        open_folder(part.parent)


def test_one_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BuildError, match="cannot be used") as caught:
        open_folder(tmp_path / "file" / "cache")
    assert "AOTPACK_CACHE_DIR" in str(caught.value.hint)


@as_root
def test_a_part_of_another_user(tmp_path: Path) -> None:
    part = own_part(tmp_path)
    part.mkdir(mode=0o700)
    os.chown(part, 65534, 65534)
    with pytest.raises(BuildError, match="belongs to you"):
        open_folder(tmp_path)


@as_root
def test_an_entry_of_another_user_is_made_again(tmp_path: Path) -> None:
    cache = BuildCache(tmp_path)
    path = cache.get("ab" * 32, ".o", lambda path: path.write_text("ours") and None)
    os.chown(path, 65534, 65534)
    assert BuildCache(tmp_path).find("ab" * 32, ".o") is None


@as_root
def test_two_users_share_a_folder_but_no_entries(request: pytest.FixtureRequest) -> None:
    # The folders above pytest's own are closed to other users.
    shared = Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR", "/tmp")))
    request.addfinalizer(partial(shutil.rmtree, shared))
    shared.chmod(0o1777)
    script = f"""
import os
from pathlib import Path
from aotpack.building.cache import BuildCache  # before the user changes: the package may lie where they cannot read
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
cache = BuildCache(Path({str(shared)!r}))
print(cache.content("ab" * 32, ".o", lambda path: path.write_text("theirs")).decode())
try:
    os.listdir({str(own_part(shared))!r})
except PermissionError:
    print("private")
"""
    cache = BuildCache(shared)
    assert cache.content("ab" * 32, ".o", lambda path: path.write_text("ours") and None) == b"ours"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "theirs\nprivate\n", done.stderr
    assert cache.content("ab" * 32, ".o", lambda path: None) == b"ours"
