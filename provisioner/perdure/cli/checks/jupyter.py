"""What Jupyter must find: the provisioner, a kernel spec, the two extensions. Files are read, Jupyter is not loaded."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_config_path, jupyter_path

from .check import Check

PROVISIONER = "perdure-provisioner"
SERVER_EXTENSION = "perdure.jupyter.extension"
LAB_EXTENSION = "@perdure/labextension"
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?")
"""jupyter_client takes the Jupyter server's own Python for these names, whatever is on PATH."""
_REINSTALL = "pip install --force-reinstall perdure, in the environment of the Jupyter server"


def jupyter() -> list[Check]:
    return [_provisioner(), _kernel_specs(), _server_extension(), _lab_extension()]


def _provisioner() -> Check:
    found = [entry.value for entry in entry_points(group="jupyter_client.kernel_provisioners", name=PROVISIONER)]
    means = "Jupyter starts kernels through it."
    if found:
        return Check("provisioner", True, found[0], means)
    return Check("provisioner", False, "Jupyter doesn't know it", means, _REINSTALL)


def _kernel_specs() -> Check:
    means = "The kernels that you pick in the launcher to be protected."
    found: list[str] = []
    broken: list[str] = []
    for path, spec in _installed_specs():
        program = str((spec.get("argv") or [""])[0])
        runs = _PYTHON.fullmatch(program) or shutil.which(program)
        (found if runs else broken).append(f"{path.parent.name} ({spec.get('display_name', '')})")
    if not found and not broken:
        return Check("kernel-spec", False, "none", means, "perdure kernelspec install --sys-prefix")
    if broken:
        fix = "perdure kernelspec install --python PATH --name NAME, with a Python that exists"
        return Check("kernel-spec", bool(found), f"{', '.join(broken)}: its program is not there", means, fix)
    return Check("kernel-spec", True, ", ".join(found), means)


def _installed_specs() -> Iterator[tuple[Path, dict[str, Any]]]:
    """Specs that name our provisioner; of several with one name, the one that Jupyter takes."""
    seen = set()
    for folder in jupyter_path("kernels"):
        for path in _glob(Path(folder), "*/kernel.json"):
            name = path.parent.name.lower()
            if name in seen:
                continue
            seen.add(name)
            spec = _read(path)
            provisioner = (spec.get("metadata") or {}).get("kernel_provisioner") or {}
            if provisioner.get("provisioner_name") == PROVISIONER:
                yield path, spec


def _server_extension() -> Check:
    means = "It tells JupyterLab how its kernels are, and restores one on your request."
    enabled: dict[str, bool] = {}
    for folder in reversed(jupyter_config_path()):  # later ones win
        files = [*_glob(Path(folder), "jupyter_server_config.d/*.json"), Path(folder) / "jupyter_server_config.json"]
        for path in files:
            told = (_read(path).get("ServerApp") or {}).get("jpserver_extensions") or {}
            enabled.update({name: bool(on) for name, on in told.items() if name.split(".")[0] == "perdure"})
    name = next(iter(enabled), SERVER_EXTENSION)
    if any(enabled.values()):
        return Check("server-extension", True, f"{name}, enabled", means, needed=False)
    found = "disabled" if enabled else "not installed"
    return Check("server-extension", False, found, means, f"jupyter server extension enable {name}", needed=False)


def _lab_extension() -> Check:
    means = "It shows in JupyterLab how a kernel is protected. Kernels are protected without it."
    for folder in jupyter_path("labextensions"):
        package = _read(Path(folder) / LAB_EXTENSION / "package.json")
        if not package:
            continue
        found = f"{package.get('version', '?')} in {Path(folder) / LAB_EXTENSION}"
        if _disabled():
            return Check(
                "lab-extension", False, f"{found}, disabled", means, f"jupyter labextension enable {LAB_EXTENSION}", needed=False
            )
        return Check("lab-extension", True, f"{found}, enabled", means, needed=False)
    return Check("lab-extension", False, "not installed", means, _REINSTALL, needed=False)


def _disabled() -> bool:
    for folder in jupyter_config_path():
        disabled = _read(Path(folder) / "labconfig" / "page_config.json").get("disabledExtensions") or {}
        if isinstance(disabled, list):
            disabled = dict.fromkeys(disabled, True)
        told = [on for name, on in disabled.items() if name.split(":")[0] == LAB_EXTENSION]
        if told:
            return any(told)
    return False


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []  # somebody else's home, say: Jupyter doesn't find anything there either


def _read(path: Path) -> dict[str, Any]:
    """A JSON object; empty when there is none that can be read (Jupyter itself complains about those)."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
