"""`perdure engine install`: a CRIU that works on today's kernels, in a private folder."""

from __future__ import annotations

import sys
from pathlib import Path

from traitlets import Unicode

from perdure.domain.errors import NotProtected

from .app import ALIASES, PerdureApp, later

_ALIASES = {**ALIASES, "prefix": "InstallApp.prefix"}
_VERBS = {"install": (later("engine", "InstallApp"), "get a CRIU that works here")}


class InstallApp(PerdureApp):
    """Put CRIU into a private folder, with apt and the machine's own mirror; nothing is changed outside of that folder.

    Where a good CRIU exists already, nothing is done.
    """

    name = "perdure-engine-install"
    description = __doc__
    aliases = _ALIASES
    prefix = Unicode(help="The folder. Default: share/perdure/criu of this Python environment.").tag(config=True)

    def act(self, *arguments: str) -> int:
        from perdure.engine import criu

        prefix = Path(self.prefix).absolute() if self.prefix else Path(sys.prefix) / "share" / "perdure" / "criu"
        try:
            found = criu.find(prefix)
            installed = bool(self.prefix) and prefix not in found.path.parents
        except NotProtected:
            installed = True
        if installed:
            from perdure.engine.install import install

            self.log.info("Installing CRIU into %s", prefix)
            found = install(prefix)
        what = "was installed at" if installed else "is good enough, at"
        self.show(
            {"criu": {"path": str(found.path), "version": found.name}, "installed": installed},
            f"CRIU {found.name} {what} {found.path}.",
        )
        return 0


class EngineApp(PerdureApp):
    """The engine: CRIU."""

    name = "perdure-engine"
    description = __doc__
    subcommands = _VERBS
