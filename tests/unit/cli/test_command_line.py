"""Exit statuses, and one JSON document on stdout whatever happens."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from perdure import __version__
from perdure.cli import main

VERBS = ("doctor", "list", "show", "snapshot", "restore", "verify", "engine", "kernelspec", "agent")


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Jupyter's folders, empty; returns the one for configuration."""
    folder = tmp_path / "jupyter"
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(folder / name.lower()))
    monkeypatch.setenv("JUPYTER_NO_CONFIG", "")
    monkeypatch.delenv("PERDURE_REPOSITORY", raising=False)
    monkeypatch.setenv("PERDURE_AGENT", f"unix://{tmp_path}/nobody.sock")
    (folder / "jupyter_config_dir").mkdir(parents=True)
    return folder / "jupyter_config_dir"


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Callable[[], dict[str, Any]]:
    """stdout as the one JSON document that it must be."""

    def read() -> dict[str, Any]:
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, dict)
        return found

    return read


@pytest.mark.parametrize(
    "argv",
    [
        ["nonsense"],
        ["show"],
        ["show", "a", "b"],
        ["show", "a", "--nonsense"],
        ["show", "a", "--nonsense=3"],
        ["show", "../../etc"],
        ["snapshot"],
        ["restore"],
        ["restore", "a", "--generation", "b"],
        ["restore", "a", "--generation"],
        ["restore", "a", "--generation", "0"],
        ["restore", "a", "--generation=-1"],
        ["verify", "a", "b"],
        ["verify", "--repository", "gopher://x"],
        ["engine"],
        ["engine", "remove"],
        ["kernelspec"],
        ["kernelspec", "protect"],
        ["list", "a"],
        ["doctor", "a"],
        ["--nonsense"],
        [],
    ],
)
def test_wrong_usage(argv: list[str], document: Callable[[], dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*argv, "--json"]) == 2
    error = document()["error"]
    assert error["code"] == "bad-request"
    assert error["sentence"]
    assert error["hint"]
    assert main(argv) == 2
    said = capsys.readouterr()
    assert error["sentence"] in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize("argv", [["nonsense"], ["kernelspec", "nonsense"]])
def test_a_verb_that_there_is_not(argv: list[str], document: Callable[[], dict[str, Any]]) -> None:
    assert main([*argv, "--json"]) == 2
    error = document()["error"]
    assert "nonsense" in error["sentence"]
    assert set(error["hint"].replace(",", " ").replace(".", " ").split()) & {*VERBS, "protect"}


@pytest.mark.parametrize("argv", [["show", "a"], ["snapshot", "a"], ["restore", "a"]])
def test_no_agent(argv: list[str], document: Callable[[], dict[str, Any]]) -> None:
    assert main([*argv, "--json"]) == 1
    assert document()["error"]["code"] == "agent-unreachable"


def test_list_without_an_agent_says_that_nothing_is_protected(document: Callable[[], dict[str, Any]]) -> None:
    assert main(["list", "--json"]) == 0
    found = document()
    assert found["agent"] is None
    assert found["kernels"] == []
    assert found["why"]["code"] == "agent-unreachable"


def test_an_agent_address_that_is_none(document: Callable[[], dict[str, Any]]) -> None:
    assert main(["show", "a", "--agent", "carrier-pigeon://coop", "--json"]) == 2
    assert document()["error"]["code"] == "bad-request"


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_every_verb(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert capsys.readouterr().out


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    assert set(VERBS) <= set(re.findall(r"^\w+$", told, re.MULTILINE))
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_generated_configuration_has_every_verbs_settings(own_configuration: Path) -> None:
    assert main(["--generate-config"]) == 0
    text = (own_configuration / "perdure_config.py").read_text()
    assert {"# c.PerdureApp.agent", "# c.PerdureApp.repository", "# c.RestoreApp.accept_changed_files"} <= {
        line.split(" = ")[0] for line in text.splitlines()
    }


def test_configuration_file_and_command_line(
    own_configuration: Path, tmp_path: Path, document: Callable[[], dict[str, Any]]
) -> None:
    (own_configuration / "perdure_config.py").write_text(f"c.PerdureApp.repository = 'file://{tmp_path}/configured'\n")
    assert main(["verify", "--json"]) == 1
    assert f"{tmp_path}/configured" in document()["error"]["sentence"]
    assert main(["verify", "--json", "--repository", str(tmp_path / "told")]) == 1
    assert f"{tmp_path}/told" in document()["error"]["sentence"]


@pytest.mark.parametrize("text", ["c.PerdureApp.agent = 3\n", "c.PerdureApp.agent = \n", "1 / 0\n"])
def test_broken_configuration_file(
    text: str, own_configuration: Path, document: Callable[[], dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    (own_configuration / "perdure_config.py").write_text(text)
    assert main(["verify", "--json"]) == 2
    assert document()["error"]["code"] == "bad-request"
    assert main(["verify"]) == 2
    assert "Traceback" not in capsys.readouterr().err
