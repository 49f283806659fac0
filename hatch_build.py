"""Build hook: the lab extension (npm) and the native programs (make) go into one platform wheel.

What goes wrong in the world: a left-over development build of the extension is shipped with its source maps; a wheel with a
native program is tagged `any`; an sdist needs Node although it holds the built extension. So: a standard build always builds
the extension anew, except from an sdist; an editable one leaves it to the Makefile, which knows what has changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXTENSION = "share/jupyter/labextensions/@perdure/labextension"


class PerdureBuildHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """`version` is "standard" or "editable"; hatchling calls this before it collects files."""
        root = Path(self.root)
        package = root / "provisioner" / "perdure"
        if version == "standard":
            self._extension(root, package / "labextension")
        if self.target_name != "wheel":
            return
        programs = package / "bin"
        subprocess.run(["make", "-s", "-C", str(root / "native"), f"OUT={programs}"], check=True)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{_platform()}"
        if version == "standard":
            build_data["artifacts"].append("provisioner/perdure/bin/*")
            # Only here: an editable install would copy it, and the copy would go stale; `make setup` links it.
            build_data["shared_data"]["provisioner/perdure/labextension"] = EXTENSION
            build_data["shared_data"]["labextension/install.json"] = f"{EXTENSION}/install.json"

    def _extension(self, root: Path, output: Path) -> None:
        if (root / "PKG-INFO").exists():
            if not (output / "package.json").is_file():
                raise RuntimeError("This sdist lacks the built lab extension: provisioner/perdure/labextension.")
            return
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError("npm was not found. Building from a checkout needs Node.js ^20.19 or >=22.12.")
        shutil.rmtree(output, ignore_errors=True)
        if not (root / "node_modules" / "@jupyter" / "builder").is_dir():
            subprocess.run([npm, "ci", "--no-audit", "--no-fund"], cwd=root, check=True)
        subprocess.run([npm, "run", "-s", "build:prod"], cwd=root, check=True)


def _platform() -> str:
    """PERDURE_PLATFORM lets a build in a manylinux container say so."""
    named = os.environ.get("PERDURE_PLATFORM")
    return named or sysconfig.get_platform().replace("-", "_").replace(".", "_")
