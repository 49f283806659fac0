"""The server extension: what this server's kernels are to Perdure, for the lab extension and anybody else who may ask."""

from __future__ import annotations

from typing import Any

from jupyter_server.extension.application import ExtensionApp

from .handlers import KernelHandler, KernelsHandler, RestoreHandler, SnapshotHandler

KERNEL = r"perdure/api/kernels/([^/]+)"


class PerdureExtension(ExtensionApp):
    """Routes, nothing else: all state is the agent's."""

    name = "perdure"
    handlers = [  # noqa: RUF012 - ExtensionApp's way
        (r"perdure/api/kernels", KernelsHandler),
        (KERNEL, KernelHandler),
        (KERNEL + "/snapshot", SnapshotHandler),
        (KERNEL + "/restore", RestoreHandler),
    ]


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by jupyter_server for the module that jupyter_server_config.d/perdure.json names."""
    return [{"module": "perdure.jupyter.extension", "app": PerdureExtension}]
