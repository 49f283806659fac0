"""Kernel specs under Perdure: for another Python environment (`install`), around any installed spec (`protect`).

The spec "Checkpointed GPU Python" of the environment that Perdure is in comes with the package; the folder `kernelspec` beside
this file is its source.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager

from perdure.domain.errors import BadRequest, Forbidden, NotFound

NAME = "checkpointed-gpu-python"
PROVISIONER = "perdure-provisioner"
SHIPPED = Path(__file__).parent / "kernelspec"
LAUNCH = Path(__file__).parents[1] / "kernelside" / "launch.py"
PREFIX = "checkpointed-"

OLDEST_PYTHON = (3, 9)
OLDEST_IPYKERNEL = 6
ASK_S = 60.0
"""How long a Python may take to import ipykernel: seconds on a cold network file system."""
_ASK = "import sys, json, ipykernel; print(json.dumps([list(sys.version_info[:2]), sys.prefix, ipykernel.__version__]))"
_LOCAL = "local-provisioner"
"""Jupyter's default one, which some specs name: being put under Perdure takes nothing away from it."""


@dataclass(frozen=True)
class Spec:
    """An installed kernel spec."""

    name: str
    display_name: str
    folder: Path
    argv: tuple[str, ...]


def install(
    python: str | None = None,
    name: str | None = None,
    *,
    display_name: str | None = None,
    user: bool = False,
    sys_prefix: bool = False,
    manager: KernelSpecManager | None = None,
) -> Spec:
    """The spec for the Python of another environment (this one by default); replaces one of the same name.

    It goes where this environment's Jupyter finds it (`sys_prefix`, the default) or to the user's own. Raises BadRequest when
    that Python can't run an IPython kernel, Forbidden when the place can't be written.
    """
    spec = json.loads((SHIPPED / "kernel.json").read_text())
    if python is None:
        spec["argv"][0] = sys.executable
        default = ("", "")
    else:
        program, environment = _examine(python)
        spec["argv"] = [program, str(LAUNCH), "-f", "{connection_file}"]
        default = (f"-{_plain(environment)}", f" ({environment})")
    spec["display_name"] = display_name or spec["display_name"] + default[1]
    return _write(spec, SHIPPED, name or NAME + default[0], _place(user, sys_prefix), manager)


def protect(name: str, *, user: bool = False, sys_prefix: bool = False, manager: KernelSpecManager | None = None) -> Spec:
    """A copy of an installed spec, of whatever language, that runs under Perdure: `checkpointed-NAME`, "Checkpointed …".

    Idempotent; a spec that is under Perdure already is returned as it is. Everything else in it stays. Raises NotFound,
    BadRequest when it has another provisioner, Forbidden.
    """
    manager = manager or KernelSpecManager()
    found = manager.find_kernel_specs()
    if name not in found:
        raise NotFound(f"There is no kernel spec {name!r}.", hint=f"There are: {', '.join(sorted(found)) or 'none'}.")
    source = Path(found[name])
    spec = _read(source, name, manager)
    metadata = spec.setdefault("metadata", {})
    present = (metadata.get("kernel_provisioner") or {}).get("provisioner_name", _LOCAL)
    if present == PROVISIONER:
        return Spec(name, spec["display_name"], source, tuple(spec["argv"]))
    if present != _LOCAL:
        raise BadRequest(
            f"The kernels of {name!r} are started by another provisioner, {present!r}.",
            hint="Perdure protects kernels that run on this machine; protect the spec that runs there.",
        )
    metadata["kernel_provisioner"] = {"provisioner_name": PROVISIONER, "config": {}}
    spec["display_name"] = f"Checkpointed {spec['display_name']}"
    spec["argv"] = _launched(spec["argv"])
    return _write(spec, source, PREFIX + name, _place(user, sys_prefix), manager)


def _read(folder: Path, name: str, manager: KernelSpecManager) -> dict[str, Any]:
    """Not through the manager where there is a file: it hides specs whose provisioner is missing. ipykernel's own has none."""
    try:
        return dict(json.loads((folder / "kernel.json").read_text()))
    except FileNotFoundError:
        return dict(manager.get_kernel_spec(name).to_dict())
    except ValueError as error:
        raise BadRequest(f"{folder}/kernel.json is no JSON.", hint="Install that kernel again.", detail=str(error)) from error


def _launched(argv: list[str]) -> list[str]:
    """IPython kernels start through `launch.py`, for its history and random numbers; other programs as they are."""
    if argv[1:3] == ["-m", "ipykernel_launcher"]:
        return [argv[0], str(LAUNCH), *argv[3:]]
    return argv


def _examine(python: str) -> tuple[str, str]:
    """(path, the environment's name) of a Python that can run an IPython kernel."""
    found = shutil.which(os.path.expanduser(python))
    if found is None:
        raise BadRequest(f"There is no program {python}.", hint="Name the environment's Python: /path/to/env/bin/python.")
    # Not resolved: a virtual environment's Python is a link, and its place is what makes it one.
    program = os.path.abspath(found)
    try:
        asked = subprocess.run(
            [program, "-c", _ASK], capture_output=True, text=True, timeout=ASK_S, check=False, stdin=subprocess.DEVNULL
        )
        version, prefix, ipykernel = json.loads(asked.stdout)
    except subprocess.TimeoutExpired as error:
        raise BadRequest(f"{program} did not answer within {ASK_S:.0f} seconds.", hint="Try again.") from error
    except (OSError, ValueError) as error:
        detail = asked.stderr if isinstance(error, ValueError) else str(error)
        if "No module named 'ipykernel'" in detail:
            raise BadRequest(
                f"{program} has no ipykernel.", hint=f"Run: {program} -m pip install ipykernel", detail=detail
            ) from error
        raise BadRequest(f"{program} does not work as a Python.", hint="Try it by hand.", detail=detail) from error
    if tuple(version) < OLDEST_PYTHON:
        raise BadRequest(f"{program} is Python {version[0]}.{version[1]}.", hint="Python 3.9 or newer is needed.")
    if int(ipykernel.split(".")[0]) < OLDEST_IPYKERNEL:
        raise BadRequest(f"{program} has ipykernel {ipykernel}.", hint=f"Run: {program} -m pip install 'ipykernel>=6'")
    return program, Path(prefix).name


def _plain(text: str) -> str:
    """`text` as part of a kernel spec's name."""
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-._") else "-" for letter in text).strip("-.")


def _place(user: bool, sys_prefix: bool) -> str | None:
    """A prefix, or None for the user's own place."""
    if user and sys_prefix:
        raise BadRequest("--user and --sys-prefix are two places.", hint="Choose one.")
    return None if user else sys.prefix


def _write(spec: dict[str, Any], source: Path, name: str, prefix: str | None, manager: KernelSpecManager | None) -> Spec:
    manager = manager or KernelSpecManager()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "spec"
        shutil.copytree(source, folder)
        (folder / "kernel.json").write_text(json.dumps(spec, indent=1) + "\n")
        try:
            placed = manager.install_kernel_spec(str(folder), name, user=prefix is None, prefix=prefix)
        except ValueError as error:
            raise BadRequest(f"{name!r} can't be the name of a kernel spec.", hint="Letters, digits, '-', '.', '_'.") from error
        except OSError as error:
            where = error.filename or prefix
            raise Forbidden(f"{where} can't be written.", hint="--user installs it for you only.", detail=str(error)) from error
    return Spec(name, spec["display_name"], Path(placed), tuple(spec["argv"]))
