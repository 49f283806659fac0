"""Perdure's provisioner as an entry point, also where the package is only on the path and not installed."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import entry_points
from pathlib import Path

import perdure

GROUP, NAME = "jupyter_client.kernel_provisioners", "perdure-provisioner"
PACKAGES = str(Path(perdure.__file__).parents[1])


def register(folder: Path) -> dict[str, str]:
    """Make this process find it; the environment for others to find it too."""
    paths = [PACKAGES]
    if not entry_points(group=GROUP, name=NAME):
        info = folder / "perdure_for_tests-0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: perdure-for-tests\nVersion: 0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{NAME} = perdure.jupyter.provisioner:PerdureProvisioner\n")
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    if entry_points(group=GROUP, name=NAME) and (folder / "perdure_for_tests-0.dist-info").exists():
        paths.append(str(folder))
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([*paths, *([inherited] if inherited else [])])}
