"""`perdure kernelspec install` and `perdure kernelspec protect NAME`: choose what runs under Perdure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from traitlets import Bool, Unicode

from .app import ALIASES, FLAGS, PerdureApp, later

if TYPE_CHECKING:
    from perdure.jupyter.kernelspec import Spec

_ALIASES = {
    **ALIASES,
    "python": "InstallApp.python",
    "name": "InstallApp.spec",
    "display-name": "InstallApp.display_name",
}
_FLAGS = {
    **FLAGS,
    "user": ({"PlacingApp": {"user": True}}, "for this user only"),
    "sys-prefix": ({"PlacingApp": {"sys_prefix": True}}, "into this Python environment (default)"),
}
_VERBS = {
    "install": (later("kernelspec", "InstallApp"), "make one for a Python environment"),
    "protect": (later("kernelspec", "ProtectApp"), "put an installed one under Perdure"),
}


class PlacingApp(PerdureApp):
    """What both verbs need: where the spec goes."""

    flags = _FLAGS
    user = Bool(False, help="Install for this user only.").tag(config=True)
    sys_prefix = Bool(False, help="Install into this Python environment.").tag(config=True)

    def told(self, spec: Spec) -> None:
        document = {
            "name": spec.name,
            "display_name": spec.display_name,
            "folder": str(spec.folder),
            "argv": list(spec.argv),
        }
        self.show(document, f"{spec.display_name} ({spec.name}) is in {spec.folder}.")


class InstallApp(PlacingApp):
    """Make a kernel spec for a Python environment whose kernels outlive their node."""

    name = "perdure-kernelspec-install"
    description = __doc__
    aliases = _ALIASES
    examples = """
    perdure kernelspec install
    perdure kernelspec install --python ~/envs/torch/bin/python --name torch
    """
    python = Unicode(help="Python of the environment (venv, conda); this one by default. It needs ipykernel.").tag(config=True)
    spec = Unicode(help="Name of the kernel spec; made from the environment's by default.").tag(config=True)
    display_name = Unicode(help="What the launcher shows.").tag(config=True)

    def act(self, *arguments: str) -> int:
        from perdure.jupyter.kernelspec import install

        self.told(
            install(
                self.python or None,
                self.spec or None,
                display_name=self.display_name or None,
                user=self.user,
                sys_prefix=self.sys_prefix,
            )
        )
        return 0


class ProtectApp(PlacingApp):
    """Make a copy of an installed kernel spec, of whatever language, that runs under Perdure."""

    name = "perdure-kernelspec-protect"
    description = __doc__
    arguments = ("NAME",)
    examples = """
    perdure kernelspec protect ir
    """

    def act(self, *arguments: str) -> int:
        from perdure.jupyter.kernelspec import protect

        self.told(protect(arguments[0], user=self.user, sys_prefix=self.sys_prefix))
        return 0


class KernelspecApp(PerdureApp):
    """Kernel specs under Perdure."""

    name = "perdure-kernelspec"
    description = __doc__
    subcommands = _VERBS
