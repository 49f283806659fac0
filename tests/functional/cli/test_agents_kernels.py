"""The verbs that ask an agent, with a real one, a real kernel and real snapshots."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import perdure
import pytest
from perdure.cli import main

pytestmark = [pytest.mark.criu, pytest.mark.root]

GENERATION = {
    "generation", "created", "trigger", "engine", "stall_s", "total_s",
    "bytes_logical", "bytes_added", "execution_count", "verified",
}  # fmt: skip
STATUS = {"kernel_id", "phase", "host", "owner", "endpoint", "generations"}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """run(*argv) -> (exit status, the document on stdout)."""

    def call(*argv: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        status = main([*argv, "--json"])
        return status, json.loads(capsys.readouterr().out)

    return call


def test_from_snapshot_to_restore(agent, python, run, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    python.run("x = 1")
    status, taken = run("snapshot", "pyth")
    assert status == 0
    assert taken["kernel_id"] == "python-1"
    assert taken["trigger"] == "demand"
    python.run("x = 2")

    status, shown = run("show", "python-1")
    assert status == 0
    assert set(shown) >= STATUS
    assert shown["phase"] == "running"
    assert shown["owner"]["uid"] == os.geteuid()
    assert set(shown["endpoint"]) == {"ip", "ports"}, "the key is a secret"
    newest = shown["generations"][-1]
    assert set(newest) >= GENERATION
    assert newest["generation"] == taken["generation"]
    assert newest["execution_count"] == 1
    assert 0 < newest["stall_s"] <= newest["total_s"]
    assert 0 < newest["bytes_added"] < newest["bytes_logical"]
    assert newest["verified"] is True
    assert datetime.fromisoformat(newest["created"]).tzinfo is not None

    status, listed = run("list")
    assert status == 0
    assert listed["agent"] == agent.address
    assert [kernel["kernel_id"] for kernel in listed["kernels"]] == ["python-1"]
    assert main(["list"]) == 0
    assert str(listed["kernels"][0]["pid"]) in capsys.readouterr().out.split(), "the README says that it is there"

    status, restored = run("restore", "python", "--generation", str(taken["generation"]))
    assert status == 0
    assert restored["phase"] == "running"
    assert restored["restores"][-1]["generation"] == taken["generation"]
    assert python.run("assert x == 1")["status"] == "ok"

    status, report = run("verify", "--data", "--repository", shown["repository"])
    assert status == 0
    assert {one["generation"] for one in report["generations"]} >= {taken["generation"]}

    for argv in (["list"], ["show", "python-1"], ["snapshot", "python-1"], ["restore", "python-1"]):
        assert main(argv) == 0
        said = capsys.readouterr()
        assert "python-1" in said.out
        assert said.err == ""


def test_wrong_generations(agent, python, run) -> None:  # type: ignore[no-untyped-def]
    python.run("x = 1")
    run("snapshot", "python-1")
    status, told = run("restore", "python-1", "--generation", "99")
    assert (status, told["error"]["code"]) == (1, "not-found")
    assert python.run("assert x == 1")["status"] == "ok", "the kernel was left alone"


def test_which_kernel(agent, run) -> None:  # type: ignore[no-untyped-def]
    for kernel in ("twin-a", "twin-b", "twin"):
        agent.start(kernel, "sleep", "600")
    assert run("show", "twin")[1]["kernel_id"] == "twin"
    assert run("show", "twin-a")[1]["kernel_id"] == "twin-a"
    status, told = run("show", "tw")
    assert (status, told["error"]["code"]) == (2, "bad-request")
    assert all(kernel in told["error"]["hint"] for kernel in ("twin-a", "twin-b"))
    for verb in ("show", "snapshot", "restore"):
        status, told = run(verb, "other")
        assert (status, told["error"]["code"]) == (1, "not-found")


def test_a_kernel_without_snapshots(agent, run, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    agent.start("young", "sleep", "600")
    assert run("show", "young")[1]["generations"] == []
    status, told = run("restore", "young")
    assert (status, told["error"]["code"]) == (1, "not-found")
    assert main(["show", "young"]) == 0
    assert main(["list"]) == 0
    assert "young" in capsys.readouterr().out


def test_doctor_asks_the_agent(agent, run) -> None:  # type: ignore[no-untyped-def]
    _, document = run("doctor")
    assert document["agent"]["address"] == agent.address
    assert document["agent"]["pid"] == agent.process.pid
    assert {"path", "version"} == set(document["criu"])
    names = [check["name"] for check in document["checks"]]
    assert len(set(names)) == len(names)
    assert {check["name"] for check in document["agent"]["checks"]} <= set(names)


def test_somebody_elses_agent(agent) -> None:  # type: ignore[no-untyped-def]
    """A socket that may not be opened is an error: nothing is known of what is behind it."""
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(python).exists():
        pytest.skip(f"no {python} for other users")
    path = os.pathsep.join([str(Path(perdure.__file__).parents[1]), sysconfig.get_path("purelib")])
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "PYTHONPATH": path, "PERDURE_AGENT": agent.address}
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", python, "-m", "perdure", "list", "--json"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    assert json.loads(ended.stdout)["error"]["code"] == "agent-unreachable"
    assert "Traceback" not in ended.stderr


def test_a_socket_that_a_dead_agent_left(tmp_path: Path, run, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    """Kernels outlive an agent that was killed, so "none is protected" would be wrong."""
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    monkeypatch.setenv("PERDURE_AGENT", f"unix://{path}")
    status, told = run("list")
    assert (status, told["error"]["code"]) == (1, "agent-unreachable")


def test_two_agents_on_one_socket(agent) -> None:  # type: ignore[no-untyped-def]
    command = [sys.executable, "-m", "perdure", "agent"]
    ended = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    assert agent.ask(lambda client: client.host()).pid == agent.process.pid
