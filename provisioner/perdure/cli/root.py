"""`perdure` itself: which verbs there are."""

from __future__ import annotations

from importlib import import_module

from .app import PerdureApp, later

_VERBS = {
    "doctor": ("doctor", "DoctorApp", "what this host lacks to protect kernels, and what mends it"),
    "list": ("list", "ListApp", "your kernels and how they are"),
    "show": ("show", "ShowApp", "one kernel and its snapshots"),
    "snapshot": ("snapshot", "SnapshotApp", "take a snapshot now"),
    "restore": ("restore", "RestoreApp", "bring a kernel back from a snapshot"),
    "verify": ("verify", "VerifyApp", "check that what is stored is whole; works without an agent"),
    "collect": ("collect", "CollectApp", "remove older snapshots and what nobody needs; works without an agent"),
    "du": ("du", "DuApp", "what snapshots hold and take; works without an agent"),
    "key": ("key", "KeyApp", "key new, key rotate: keys of encrypted repositories"),
    "engine": ("engine", "EngineApp", "engine install: get a CRIU that works here"),
    "kernelspec": ("kernelspec", "KernelspecApp", "kernelspec install, kernelspec protect: choose what runs under Perdure"),
    "agent": ("agent", "AgentApp", "run this host's agent (root)"),
}
_SUBCOMMANDS = {verb: (later(module, name), help) for verb, (module, name, help) in _VERBS.items()}


class RootApp(PerdureApp):
    """Jupyter kernels that outlive their node."""

    description = "Jupyter kernels that outlive their node. `perdure VERB --help` tells more about one verb."
    examples = """
    perdure doctor                 # what this host lacks
    perdure list                   # kernels and their last snapshots
    perdure snapshot 3f            # KERNEL is an id or the beginning of one
    perdure restore 3f --generation 4
    """
    subcommands = _SUBCOMMANDS

    def write_default_config(self) -> None:
        """All verbs' settings; for that, all must be imported."""
        self.classes = [getattr(import_module(f"perdure.cli.{module}"), name) for module, name, _ in _VERBS.values()]
        self.classes.append(import_module("perdure.store.config").Store)
        super().write_default_config()
