"""`perdure kernelspec install` and `perdure kernelspec protect NAME`: choose what runs under Perdure."""

from __future__ import annotations

from traitlets import Bool, Unicode

from .app import ALIASES, FLAGS, PerdureApp, later

_ALIASES = {**ALIASES, "python": "InstallApp.python", "name": "InstallApp.spec"}
_FLAGS = {
    **FLAGS,
    "user": ({"InstallApp": {"user": True}}, "for this user only"),
    "sys-prefix": ({"InstallApp": {"sys_prefix": True}}, "into this Python environment"),
}
_VERBS = {
    "install": (later("kernelspec", "InstallApp"), "make one for a Python environment"),
    "protect": (later("kernelspec", "ProtectApp"), "put an installed one under Perdure"),
}


class InstallApp(PerdureApp):
    """Make a kernel spec for a Python environment whose kernels outlive their node."""

    name = "perdure-kernelspec-install"
    description = __doc__
    aliases = _ALIASES
    flags = _FLAGS
    python = Unicode(help="Python of the environment (venv, conda); this one by default.").tag(config=True)
    spec = Unicode("checkpointed-gpu-python", help="Name of the kernel spec.").tag(config=True)
    user = Bool(False, help="Install for this user only.").tag(config=True)
    sys_prefix = Bool(False, help="Install into this Python environment.").tag(config=True)


class ProtectApp(PerdureApp):
    """Put an installed kernel spec, of whatever language, under Perdure."""

    name = "perdure-kernelspec-protect"
    description = __doc__
    arguments = ("NAME",)


class KernelspecApp(PerdureApp):
    """Kernel specs under Perdure."""

    name = "perdure-kernelspec"
    description = __doc__
    subcommands = _VERBS
