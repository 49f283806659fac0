"""`kernelspec install` and `protect`: what they write, and what they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from perdure.cli import main


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder for kernel specs."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "data" / "kernels"


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    status = main(["kernelspec", *argv, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_install_for_a_python(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, told = run(capsys, "install", "--python", sys.executable, "--name", "mine", "--display-name", "Mine", "--user")
    assert status == 0
    assert told["name"] == "mine"
    assert Path(told["folder"]) == kernels / "mine"
    spec = json.loads((kernels / "mine" / "kernel.json").read_text())
    assert spec["argv"] == told["argv"]
    assert spec["argv"][0] == sys.executable
    assert spec["display_name"] == "Mine"
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == "perdure-provisioner"


def test_protect_another_language(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kernels / "tea").mkdir(parents=True)
    spec = {"argv": ["tea-kernel", "{connection_file}"], "display_name": "Tea", "language": "tea", "env": {"POT": "1"}}
    (kernels / "tea" / "kernel.json").write_text(json.dumps(spec))
    status, told = run(capsys, "protect", "tea", "--user")
    assert status == 0
    protected = json.loads((Path(told["folder"]) / "kernel.json").read_text())
    assert protected["argv"] == spec["argv"]
    assert protected["env"] == spec["env"]
    assert protected["metadata"]["kernel_provisioner"]["provisioner_name"] == "perdure-provisioner"
    assert json.loads((kernels / "tea" / "kernel.json").read_text()) == spec


def test_refusals(kernels: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "protect", "nonesuch")[1]["error"]["code"] == "not-found"
    for argv in (
        ("install", "--python", "/nonexistent/python"),
        ("install", "--python", "/bin/false", "--user"),
        ("install", "--user", "--sys-prefix"),
        ("install", "--name", "../../x", "--user"),
    ):
        status, told = run(capsys, *argv)
        assert (status, told["error"]["code"]) == (2, "bad-request")
    assert not kernels.exists()
