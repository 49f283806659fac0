"""Kernel specs for other environments, and around installed specs."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from perdure.domain.errors import BadRequest, Forbidden, NotFound
from perdure.jupyter import kernelspec


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Specs of these tests go there and are found there only."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    return tmp_path / "prefix"


@pytest.fixture
def manager(prefix: Path) -> KernelSpecManager:
    folder = prefix / "share/jupyter/kernels"
    folder.mkdir(parents=True)
    return KernelSpecManager(kernel_dirs=[str(folder)], ensure_native_kernel=False)


def add(manager: KernelSpecManager, name: str, **fields: Any) -> Path:
    """A spec as somebody else would have installed it."""
    folder = Path(manager.kernel_dirs[0]) / name
    folder.mkdir()
    (folder / "logo-64x64.png").write_bytes(b"a picture")
    spec = {"argv": ["/bin/thing", "{connection_file}"], "display_name": "Thing", "language": "thing", **fields}
    (folder / "kernel.json").write_text(json.dumps(spec))
    return folder


def test_shipped_spec_names_the_provisioner_and_is_complete() -> None:
    spec = json.loads((kernelspec.SHIPPED / "kernel.json").read_text())
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == kernelspec.PROVISIONER
    assert spec["metadata"]["debugger"] is True
    assert spec["interrupt_mode"] == "signal"
    assert {path.name for path in kernelspec.SHIPPED.iterdir()} == {
        "kernel.json",
        "logo-32x32.png",
        "logo-64x64.png",
        "logo-svg.svg",
    }


def test_install_for_this_environment(manager: KernelSpecManager) -> None:
    done = kernelspec.install(manager=manager)
    assert done.name == kernelspec.NAME
    assert done.argv[0] == sys.executable
    assert (done.folder / "logo-svg.svg").is_file()
    assert kernelspec.NAME in manager.find_kernel_specs()


def test_install_for_another_environment_starts_launch_by_its_path(manager: KernelSpecManager, tmp_path: Path) -> None:
    venv.create(tmp_path / "my env", system_site_packages=False)
    packages = next((tmp_path / "my env").glob("lib/python*/site-packages"))
    (packages / "ipykernel.py").write_text("__version__ = '6.29.5'\n")
    python = tmp_path / "my env/bin/python"
    done = kernelspec.install(str(python), manager=manager)
    assert done.argv == (str(python), str(kernelspec.LAUNCH), "-f", "{connection_file}")
    assert done.name == "checkpointed-gpu-python-my-env"
    assert "my env" in done.display_name
    assert kernelspec.install(str(python), "mine", manager=manager).name == "mine"


def test_python_without_ipykernel_is_refused(manager: KernelSpecManager, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", system_site_packages=False)
    with pytest.raises(BadRequest) as refusal:
        kernelspec.install(str(tmp_path / "bare/bin/python"), manager=manager)
    assert "ipykernel" in refusal.value.sentence
    assert not manager.find_kernel_specs()


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/true"])
def test_what_is_no_python_is_refused(manager: KernelSpecManager, program: str) -> None:
    with pytest.raises(BadRequest):
        kernelspec.install(program, manager=manager)


def test_old_ipykernel_is_refused(manager: KernelSpecManager, tmp_path: Path) -> None:
    venv.create(tmp_path / "old", system_site_packages=False)
    next((tmp_path / "old").glob("lib/python*/site-packages")).joinpath("ipykernel.py").write_text("__version__ = '5.5.6'\n")
    with pytest.raises(BadRequest):
        kernelspec.install(str(tmp_path / "old/bin/python"), manager=manager)


def test_place_that_cant_be_written(manager: KernelSpecManager) -> None:
    folder = Path(manager.kernel_dirs[0])
    folder.rmdir()
    folder.write_text("not a folder, so not even root can put anything in it")
    with pytest.raises(Forbidden):
        kernelspec.install(manager=manager)


def test_protect_keeps_everything_else(manager: KernelSpecManager) -> None:
    add(manager, "thing", env={"A": "1"}, metadata={"debugger": True, "own": [1]}, interrupt_mode="message")
    done = kernelspec.protect("thing", manager=manager)
    spec = json.loads((done.folder / "kernel.json").read_text())
    assert done.name == "checkpointed-thing"
    assert spec["display_name"] == "Checkpointed Thing"
    assert spec["argv"] == ["/bin/thing", "{connection_file}"]
    assert spec["env"] == {"A": "1"}
    assert spec["interrupt_mode"] == "message"
    assert spec["metadata"]["own"] == [1]
    assert spec["metadata"]["debugger"] is True
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == kernelspec.PROVISIONER
    assert (done.folder / "logo-64x64.png").read_bytes() == b"a picture"


def test_protect_again_changes_nothing(manager: KernelSpecManager) -> None:
    original = add(manager, "thing")
    before = (original / "kernel.json").read_text()
    first = kernelspec.protect("thing", manager=manager)
    assert kernelspec.protect("thing", manager=manager) == first
    assert kernelspec.protect(first.name, manager=manager) == first
    assert (original / "kernel.json").read_text() == before
    assert set(manager.find_kernel_specs()) == {"thing", "checkpointed-thing"}


def test_protected_ipython_kernels_start_through_launch(manager: KernelSpecManager) -> None:
    add(manager, "py", argv=["/env/bin/python", "-m", "ipykernel_launcher", "-f", "{connection_file}", "--quiet"])
    done = kernelspec.protect("py", manager=manager)
    assert done.argv == ("/env/bin/python", str(kernelspec.LAUNCH), "-f", "{connection_file}", "--quiet")


def test_spec_of_another_provisioner_is_refused(manager: KernelSpecManager) -> None:
    add(manager, "far", metadata={"kernel_provisioner": {"provisioner_name": "somewhere-else"}})
    with pytest.raises(BadRequest):
        kernelspec.protect("far", manager=manager)


def test_spec_that_comes_with_ipykernel_has_no_file(prefix: Path) -> None:
    done = kernelspec.protect("python3", manager=KernelSpecManager(kernel_dirs=[]))
    assert done.argv[1:] == (str(kernelspec.LAUNCH), "-f", "{connection_file}")
    assert (done.folder / "logo-64x64.png").is_file()


def test_broken_spec(manager: KernelSpecManager) -> None:
    (add(manager, "broken") / "kernel.json").write_text("{")
    with pytest.raises(BadRequest):
        kernelspec.protect("broken", manager=manager)


def test_local_provisioner_named_in_the_spec_is_replaced(manager: KernelSpecManager) -> None:
    add(manager, "near", metadata={"kernel_provisioner": {"provisioner_name": "local-provisioner"}})
    done = kernelspec.protect("near", manager=manager)
    spec = json.loads((done.folder / "kernel.json").read_text())
    assert spec["metadata"]["kernel_provisioner"]["provisioner_name"] == kernelspec.PROVISIONER


def test_unknown_spec(manager: KernelSpecManager) -> None:
    with pytest.raises(NotFound):
        kernelspec.protect("nothing", manager=manager)


def test_two_places_are_refused(manager: KernelSpecManager) -> None:
    with pytest.raises(BadRequest):
        kernelspec.install(user=True, sys_prefix=True, manager=manager)
