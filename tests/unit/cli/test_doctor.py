"""`doctor` works where everything is missing: that is what it is for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import perdure
import pytest

FIELDS = {"name", "ok", "found", "means", "fix", "needed"}


def doctor(tmp_path: Path, *before: str, **env: str) -> tuple[int, dict[str, Any], dict[str, dict[str, Any]]]:
    """(exit status, document, checks by name) of a `doctor` with almost nothing in its environment."""
    empty = tmp_path / "empty"
    empty.mkdir(exist_ok=True)
    environment = {
        "PATH": str(empty),
        "HOME": str(empty),
        "PERDURE_AGENT": f"unix://{empty}/agent.sock",
        "PERDURE_STATE": str(empty / "state"),
        **env,
    }
    command = [*before, sys.executable, "-m", "perdure", "doctor", "--json"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in ended.stderr
    document = json.loads(ended.stdout)
    return ended.returncode, document, {check["name"]: check for check in document["checks"]}


def test_document(tmp_path: Path) -> None:
    status, document, checks = doctor(tmp_path)
    assert {"criu", "agent", "repository", "gpus", "checks", "protected"} <= set(document)
    assert document["agent"] is None
    assert len(checks) == len(document["checks"])
    assert all(set(check) == FIELDS for check in document["checks"])
    assert all(check["found"] and check["means"] for check in document["checks"])
    assert all(check["fix"] for check in document["checks"] if not check["ok"])
    needed = {name for name, check in checks.items() if check["needed"]}
    assert {"python", "root-or-agent", "criu", "native-programs", "repository", "kernel-spec", "provisioner"} <= needed
    assert {"disk-room", "server-extension", "lab-extension", "gpu"} <= set(checks) - needed
    assert document["protected"] is all(check["ok"] for check in checks.values() if check["needed"])
    assert status == (0 if document["protected"] else 1)


def test_no_criu(tmp_path: Path) -> None:
    status, document, checks = doctor(tmp_path, PERDURE_CRIU=str(tmp_path / "no-criu"))
    assert status == 1
    assert document["criu"] is None
    assert not checks["criu"]["ok"]
    assert "perdure engine install" in checks["criu"]["fix"]


def test_no_native_programs(tmp_path: Path) -> None:
    status, _, checks = doctor(tmp_path, PERDURE_BIN=str(tmp_path))
    assert status == 1
    assert not checks["native-programs"]["ok"]


def test_a_repository_that_is_something_else(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "holiday.jpg").touch()
    status, document, checks = doctor(tmp_path, PERDURE_REPOSITORY=folder.as_uri())
    assert status == 1
    assert document["repository"]["url"] == folder.as_uri()
    assert not checks["repository"]["ok"]


def test_it_makes_nothing(tmp_path: Path) -> None:
    doctor(tmp_path)
    assert list((tmp_path / "empty").iterdir()) == []


def test_disabled_extensions(tmp_path: Path) -> None:
    config = tmp_path / "config"
    (config / "labconfig").mkdir(parents=True)
    told = {"ServerApp": {"jpserver_extensions": {"perdure.jupyter.extension": False}}}
    (config / "jupyter_server_config.json").write_text(json.dumps(told))
    (config / "labconfig" / "page_config.json").write_text(json.dumps({"disabledExtensions": {"@perdure/labextension": True}}))
    _, _, checks = doctor(tmp_path, JUPYTER_CONFIG_DIR=str(config), JUPYTER_PREFER_ENV_PATH="0")
    assert not checks["server-extension"]["ok"]
    assert not checks["lab-extension"]["ok"]


def test_a_kernel_spec_whose_python_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "kernels" / "gone"
    folder.mkdir(parents=True)
    metadata = {"kernel_provisioner": {"provisioner_name": "perdure-provisioner"}}
    spec = {"argv": [str(tmp_path / "python"), "-m", "x"], "display_name": "Gone", "language": "python", "metadata": metadata}
    (folder / "kernel.json").write_text(json.dumps(spec))
    _, _, checks = doctor(tmp_path, JUPYTER_DATA_DIR=str(tmp_path / "data"))
    assert "gone" in checks["kernel-spec"]["found"]
    assert checks["kernel-spec"]["fix"]


@pytest.mark.root
def test_for_somebody_who_is_not_root(tmp_path: Path) -> None:
    """The checkout's own Python may lie in root's home; the system's borrows its packages then."""
    tmp_path.chmod(0o755)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    source = str(Path(perdure.__file__).parents[1])
    path = os.pathsep.join([source, sysconfig.get_path("purelib")])
    python = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    if not Path(python).exists():
        pytest.skip(f"no {python} for other users")
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/root", "PYTHONPATH": path, "PERDURE_AGENT": f"unix://{home}/agent.sock"}
    command = [*nobody, python, "-m", "perdure", "doctor", "--json"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended.stderr
    checks = {check["name"]: check for check in json.loads(ended.stdout)["checks"]}
    assert not checks["root-or-agent"]["ok"]
    assert checks["root-or-agent"]["fix"]
    assert checks["python"]["ok"]
