"""Giving a kernel its own loopback address, in the words of a Jupyter kernel manager."""

from __future__ import annotations

import socket
from typing import Any

import zmq

from perdure.domain.endpoint import Endpoint
from perdure.domain.ids import KernelId

ATTEMPTS = 16
"""Addresses tried when others use the kernel's own: two ids meet at one of them once in four million."""


def choose(kernel: KernelId, key: str) -> Endpoint:
    """The first endpoint of this kernel whose five ports are free. Raises OSError when none is."""
    problem = OSError("no loopback address was tried")
    for attempt in range(ATTEMPTS):
        endpoint = Endpoint.for_kernel(kernel, key, attempt=attempt)
        try:
            for port in endpoint.ports.values():
                with socket.socket() as probe:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind((endpoint.ip, port))
        except OSError as error:
            problem = error
            continue
        return endpoint
    raise problem


def apply(endpoint: Endpoint, manager: Any) -> None:
    """Make the kernel manager use it."""
    manager.ip = endpoint.ip
    for channel, port in endpoint.ports.items():
        setattr(manager, f"{channel}_port", port)


def encrypt(manager: Any, wanted: str | None) -> None:
    """CurveZMQ keys for the manager, where it knows encryption, it is asked for and the kernel supports it; once per kernel."""
    if not hasattr(manager, "_transport_encryption_policy"):
        return
    policy = manager._transport_encryption_policy(wanted)
    able = policy == "required" or (policy == "auto" and manager._kernel_supports_curve_encryption())
    if able and manager.curve_publickey is None:
        manager.curve_publickey, manager.curve_secretkey = zmq.curve_keypair()


def of(manager: Any) -> Endpoint:
    """What the manager's clients connect to."""
    info = {name: value.decode() if isinstance(value, bytes) else value for name, value in manager.get_connection_info().items()}
    return Endpoint.from_json({**info, "kernel_name": manager.kernel_name})
