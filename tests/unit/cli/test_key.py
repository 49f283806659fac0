"""Key files from the command line, and a repository that is read with them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from perdure.cli import main
from perdure.domain.ids import KernelId
from perdure.store.repository import Repository, SourceFile
from perdure.store.settings import StoreSettings


def key(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    status = main(["key", *argv, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_repository_is_read_with_its_keys_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, folder, source = tmp_path / "key", tmp_path / "repository", tmp_path / "source"
    source.write_bytes(b"what nobody else reads" * 1000)
    status, made = key(capsys, "new", str(file))
    assert status == 0
    assert file.stat().st_mode & 0o777 == 0o600
    repository = Repository.open(folder.as_uri(), settings=StoreSettings(key_file=str(file)))
    for number in (1, 2):
        repository.publish(KernelId("3f"), [SourceFile("a", source, 0o600)], lambda _: {})
        if number == 1:
            status, rotated = key(capsys, "rotate", str(file))
            assert (status, rotated["keys"][1]) == (0, made["key"])
            repository = Repository.open(folder.as_uri(), settings=StoreSettings(key_file=str(file)))
    assert not [path for path in folder.rglob("*") if path.is_file() and b"nobody else" in path.read_bytes()]

    verify = ["verify", "--data", "--repository", str(folder)]
    assert main(verify) == 1
    monkeypatch.setenv("PERDURE_KEY_FILE", str(file))
    assert main(verify) == 0


def test_what_is_there_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "key"
    key(capsys, "new", str(file))
    before = file.read_bytes()
    assert key(capsys, "new", str(file))[0] == 2
    assert key(capsys, "new", str(tmp_path / "no" / "key"))[0] == 2
    file.chmod(0o644)
    assert key(capsys, "rotate", str(file))[0] != 0
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["key"]
