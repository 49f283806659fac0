"""What people install: the wheel and the sdist, built from a copy of this tree, and the wheel in an environment of its own."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KERNEL = "checkpointed-gpu-python"
EXTENSION = "data/share/jupyter/labextensions/@perdure/labextension"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (ROOT / "node_modules/@jupyter/builder").is_dir(), reason="node_modules is not there; `make setup` gets it"
    ),
]


def run(*words: str | Path, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what git would clone, with this checkout's Node.js packages and, as in real life, a left-over build."""
    copy = tmp_path_factory.mktemp("tree")
    for name in run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    (copy / "node_modules").symlink_to(ROOT / "node_modules")
    left_over = copy / "provisioner/perdure/labextension/static/development.js.map"
    left_over.parent.mkdir(parents=True)
    left_over.write_text("{}")
    return copy


@pytest.fixture(scope="module")
def dist(tree: Path) -> Path:
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--sdist", "--outdir", tree / "dist", tree)
    return tree / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    [path] = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(dist: Path) -> Path:
    [path] = dist.glob("*.tar.gz")
    return path


def test_wheel_is_for_this_platform_and_any_python_3(wheel: Path) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")


def test_wheel_holds_all_parts(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        shim = entries["perdure/bin/perdure-shim"]
        assert archive.read(shim)[:4] == b"\x7fELF"
        assert stat.S_IMODE(shim.external_attr >> 16) & 0o111 == 0o111
        data = {name.partition(".data/")[2]: name for name in entries if ".data/" in name}
        spec = json.loads(archive.read(data[f"data/share/jupyter/kernels/{KERNEL}/kernel.json"]))
        assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == "perdure-provisioner"
        enabled = json.loads(archive.read(data["data/etc/jupyter/jupyter_server_config.d/perdure.json"]))
        assert any(enabled["ServerApp"]["jpserver_extensions"].values())
        assert f"{EXTENSION}/install.json" in data
        built = json.loads(archive.read(data[f"{EXTENSION}/package.json"]))
        assert f"{EXTENSION}/{built['jupyterlab']['_build']['load']}" in data
    assert "perdure/kernelside/launch.py" in entries


def test_wheel_holds_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top.rpartition(".")[2] for top in tops} <= {"perdure", "dist-info", "data"}
    assert not [name for name in names if name.endswith((".map", ".ts", ".c", ".stamp", ".pyc", "build_log.json"))]
    assert not [name for name in names if name.startswith("perdure/labextension")]


def test_sdist_installs_without_node(sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
        archive.extractall(tmp_path, filter="data")
    assert not [
        name for name in names if name.startswith(("node_modules", "provisioner/perdure/bin", "labextension/lib", ".venv"))
    ]
    [source] = [path for path in tmp_path.iterdir() if path.is_dir()]
    no_node = tmp_path / "path"
    no_node.mkdir()
    for name in ("npm", "node", "npx"):
        (no_node / name).write_text("#!/bin/sh\nexit 97\n")
        (no_node / name).chmod(0o755)
    env = {**os.environ, "PATH": f"{no_node}:{os.environ['PATH']}"}
    run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path / "again", source, env=env)
    [again] = (tmp_path / "again").glob("*.whl")
    with zipfile.ZipFile(again) as archive:
        names = archive.namelist()
    assert "perdure/bin/perdure-shim" in names
    assert [name for name in names if name.endswith("labextension/package.json")]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it. The dependencies are those of this one, so that nothing is downloaded."""
    prefix = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", prefix)
    packages = next(prefix.glob("lib/python*/site-packages"))
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", prefix / "bin/python")
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", "--ignore-installed", wheel)
    return prefix


def jupyter(prefix: Path, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path), "JUPYTER_DATA_DIR": str(tmp_path), "HOME": str(tmp_path)}
    return subprocess.run([str(prefix / "bin/python"), "-m", *words], env=env, capture_output=True, text=True, check=True)


def test_kernel_spec_is_found_after_install(installed: Path, tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(jupyter(installed, tmp_path, "jupyter_client.kernelspecapp", "list", "--json").stdout)
    spec = found["kernelspecs"][KERNEL]
    assert Path(spec["resource_dir"]).is_relative_to(installed)
    assert spec["spec"]["display_name"] == "Checkpointed GPU Python"


def test_provisioner_is_found_after_install(installed: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import entry_points; "
        "[p] = entry_points(group='jupyter_client.kernel_provisioners', name='perdure-provisioner'); "
        "print(p.load().__name__)"
    )
    done = subprocess.run([str(installed / "bin/python"), "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "PerdureProvisioner"


def test_extensions_are_found_after_install(installed: Path, tmp_path: Path) -> None:
    lab = jupyter(installed, tmp_path, "jupyterlab.labextensions", "list")
    [line] = [line for line in (lab.stdout + lab.stderr).splitlines() if "@perdure/labextension" in line]
    assert "enabled" in line
    assert "OK" in line
    assert "python, perdure" in line
    server = jupyter(installed, tmp_path, "jupyter_server.extension.serverextension", "list")
    lines = (server.stdout + server.stderr).splitlines()
    assert [line for line in lines if "perdure" in line and "enabled" in line]
    assert [line for line in lines if "perdure" in line and "OK" in line]


def test_program_runs_after_install(installed: Path, tmp_path: Path) -> None:
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "PERDURE_AGENT": f"unix://{tmp_path}/nobody.sock",
        "PERDURE_STATE": str(tmp_path / "state"),
    }
    done = subprocess.run(
        [str(installed / "bin/perdure"), "doctor", "--json"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    assert json.loads(done.stdout)["checks"]
