"""`verify` reads a repository by itself: no agent, no root."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from perdure.cli import main
from perdure.domain.ids import KernelId
from perdure.store.repository import Repository, SourceFile

FIRST, SECOND = KernelId("3f2a"), KernelId("3f2b")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two kernels with a snapshot each."""
    folder = tmp_path / "repository"
    source = tmp_path / "pages-1.img"
    source.write_bytes(bytes(range(256)) * 1000)
    opened = Repository.open(folder.as_uri())
    for kernel in (FIRST, SECOND):
        opened.publish(kernel, [SourceFile("pages-1.img", source, 0o600)], lambda _: {})
    return folder


def verify(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    status = main(["verify", "--json", *argv])
    return status, json.loads(capsys.readouterr().out)


def damage(repository: Path, kernel: str) -> None:
    """Turns one bit of the largest file of that kernel."""
    path = max((one for one in repository.glob(f"**/{kernel}/**/*") if one.is_file()), key=lambda one: one.stat().st_size)
    path.chmod(0o600)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("flags", [[], ["--data"]])
def test_whole(repository: Path, flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, report = verify(capsys, "--repository", str(repository), *flags)
    assert status == 0
    assert report["ok"]
    assert {(one["kernel"], one["generation"]) for one in report["generations"]} == {(FIRST, 1), (SECOND, 1)}
    assert (report["bytes_read"] > 0) is bool(flags)


def test_damage_is_found_and_named(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(repository, SECOND)
    status, report = verify(capsys, "--data", "--repository", repository.as_uri())
    assert status == 1
    problems = {one["kernel"]: one["problems"] for one in report["generations"]}
    assert problems[FIRST] == []
    assert problems[SECOND]
    assert main(["verify", "--data", "--repository", str(repository)]) == 1
    assert problems[SECOND][0] in capsys.readouterr().out


def test_one_kernel(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(repository, SECOND)
    status, report = verify(capsys, "3f2a", "--data", "--repository", str(repository))
    assert status == 0
    assert [one["kernel"] for one in report["generations"]] == [FIRST]


@pytest.mark.parametrize(("kernel", "status", "code"), [("3f2", 2, "bad-request"), ("5", 1, "not-found")])
def test_which_kernel(repository: Path, kernel: str, status: int, code: str, capsys: pytest.CaptureFixture[str]) -> None:
    found, report = verify(capsys, kernel, "--repository", str(repository))
    assert found == status
    assert report["error"]["code"] == code


def test_repository_of_the_environment(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERDURE_REPOSITORY", repository.as_uri())
    assert verify(capsys)[1]["repository"] == repository.as_uri()


def test_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, report = verify(capsys, "--repository", str(tmp_path / "missing"))
    assert status == 1
    assert report["error"]["code"] == "store-failed"
    assert not (tmp_path / "missing").exists()


def test_a_folder_that_is_something_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "holiday.jpg").touch()
    status, report = verify(capsys, "--repository", str(tmp_path))
    assert status == 1
    assert report["error"]["code"] == "store-failed"
