"""Which CRIU is taken, and where a new one would come from. Programs that are asked are real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from perdure.domain.errors import BadRequest, NotProtected
from perdure.engine import aptsources, criu
from perdure.engine.install import install


def program(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "criu"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "answer",
    [
        'echo "Version: 4.1"',
        'echo "Version: 3.17.1"',
        "echo something else",
        "exit 1",
        'case "$1" in --version) echo "Version: 4.2.1";; *) exit 1;; esac',
    ],
)
@pytest.mark.root
def test_what_is_not_good_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setenv("PERDURE_CRIU", str(program(tmp_path, answer)))
    with pytest.raises(NotProtected):
        criu.find()


def test_a_good_one_is_asked_for_its_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = program(tmp_path, f'echo "$@" >> {tmp_path}/asked; echo "Version: 4.2.1"')
    monkeypatch.setenv("PERDURE_CRIU", str(path))
    assert criu.find() == criu.Criu(path, (4, 2, 1))
    assert set((tmp_path / "asked").read_text().splitlines()) >= {"--version"}


def test_a_program_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_CRIU", str(tmp_path / "nothing"))
    with pytest.raises(NotProtected):
        criu.find()


def test_a_prefix_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PERDURE_CRIU", raising=False)
    bad = program(tmp_path / "old", 'echo "Version: 3.17"')
    good = program(tmp_path / "new", 'echo "Version: 4.9"')
    monkeypatch.setenv("PATH", f"{bad.parent}:/usr/bin:/bin")
    assert criu.find(good.parent).path == good


def test_nothing_of_the_user_reaches_criu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRIU_CONFIG_FILE", "/somewhere")
    monkeypatch.setenv("LD_PRELOAD", "/somewhere")
    assert set(criu.environment()) == {"PATH", "LC_ALL", "HOME", "CRIU_LIBS_DIR"}
    assert not list(Path(criu.environment()["CRIU_LIBS_DIR"]).glob("*.so"))


def machine(root: Path, release: str, **sources: str) -> Path:
    (root / "etc/apt/sources.list.d").mkdir(parents=True)
    (root / "etc/os-release").write_text(release)
    for name, text in sources.items():
        path = root / "etc/apt" / ("sources.list" if name == "main" else f"sources.list.d/{name.replace('_', '.')}")
        path.write_text(text)
    return root


DEBIAN = 'ID=debian\nVERSION_CODENAME=bookworm\nPRETTY_NAME="Debian"\n'


def test_mirrors_are_read_from_both_kinds_of_sources(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        DEBIAN,
        main=(
            "# deb http://no.invalid/mirror bookworm main\n"
            "deb [arch=amd64 signed-by=/x] http://one.invalid/mirror bookworm main contrib\n"
        ),
        debian_sources=(
            "Types: deb deb-src\n# a comment\nURIs: http://two.invalid/mirror\n http://three.invalid/mirror\n"
            "Suites: bookworm bookworm-updates\nComponents: main\n\n"
            "Types: deb\nURIs: http://security.invalid/debian-security\nSuites: bookworm-security\nComponents: main\n\n"
            "Enabled: no\nTypes: deb\nURIs: http://off.invalid/mirror\nSuites: bookworm\nComponents: main\n"
        ),
        other_list="deb https://other.invalid/apt stable main\n",
    )
    found = aptsources.distribution(root)
    assert (found.name, found.codename) == ("debian", "bookworm")
    assert aptsources.mirrors(found, root) == [f"http://{name}.invalid/mirror" for name in ("one", "two", "three")]


def test_relatives_are_taken_for_what_they_come_from(tmp_path: Path) -> None:
    release = "ID=linuxmint\nID_LIKE='ubuntu debian'\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n"
    root = machine(tmp_path, release, main="deb http://one.invalid/ubuntu noble main universe\n")
    found = aptsources.distribution(root)
    assert (found.name, found.codename) == ("ubuntu", "noble")
    assert aptsources.mirrors(found, root) == ["http://one.invalid/ubuntu"]


def test_other_systems_are_told_so(tmp_path: Path) -> None:
    with pytest.raises(NotProtected):
        aptsources.distribution(machine(tmp_path, "ID=fedora\n"))


def test_no_mirror_and_no_keys(tmp_path: Path) -> None:
    root = machine(tmp_path, DEBIAN, main="deb http://one.invalid/mirror trixie main\n")
    found = aptsources.distribution(root)
    with pytest.raises(NotProtected):
        aptsources.mirrors(found, root)
    with pytest.raises(NotProtected):
        aptsources.keyring(found, root)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "criu").mkdir()
    (tmp_path / "criu/letters").write_text("mine")
    with pytest.raises(BadRequest):
        install(tmp_path / "criu")
    assert (tmp_path / "criu/letters").read_text() == "mine"


@pytest.mark.root
def test_without_apt_it_says_so_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotProtected):
        install(tmp_path / "here/criu")
    assert [path.name for path in (tmp_path / "here").iterdir()] == [".criu.lock"]


@pytest.mark.root
def test_a_release_that_does_not_exist_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotProtected):
        install(tmp_path / "criu", suite="no-such-release")
    assert [path.name for path in tmp_path.iterdir()] == [".criu.lock"]


@pytest.mark.slow
@pytest.mark.criu
def test_an_installed_one_works_and_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Downloads from this machine's own mirror."""
    broken = program(tmp_path / "criu", "exit 1")
    installed = install(tmp_path / "criu")
    assert installed.path == broken
    before = installed.path.stat()
    assert install(tmp_path / "criu") == installed
    assert installed.path.stat().st_ino == before.st_ino
    monkeypatch.setenv("PERDURE_CRIU", str(installed.path))
    assert criu.find() == installed
