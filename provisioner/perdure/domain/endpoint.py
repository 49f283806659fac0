"""Where a kernel listens: its own loopback address, the same on every host.

A kernel's five ports are fixed and its address is derived from its id, so two kernels never want the same port, a restored
kernel finds its own ports free on any host, and the connection info that the Jupyter server holds never changes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

from .ids import KernelId

CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
FIRST_PORT = 7101
"""Below every ephemeral port range in use, so no outgoing connection can have taken it."""


def loopback_address(kernel: KernelId, attempt: int = 0) -> str:
    """127.b.c.d for a kernel; `attempt` gives other ones when two ids meet at one address (b is 64–127: 4 million)."""
    digest = hashlib.blake2b(f"{kernel}/{attempt}".encode(), digest_size=3).digest()
    return f"127.{64 + digest[0] % 64}.{digest[1]}.{1 + digest[2] % 254}"


@dataclass(frozen=True)
class Endpoint:
    """A kernel's connection info. `key` is a secret: never log it."""

    ip: str
    ports: dict[str, int]
    key: str = field(repr=False)
    signature_scheme: str = "hmac-sha256"
    kernel_name: str = ""
    extra: dict[str, Any] = field(default_factory=dict, repr=False)
    """Anything else that the connection file holds (CurveZMQ keys, say)."""

    @classmethod
    def for_kernel(
        cls, kernel: KernelId, key: str, *, kernel_name: str = "", attempt: int = 0, first_port: int = FIRST_PORT
    ) -> Endpoint:
        ports = {channel: first_port + n for n, channel in enumerate(CHANNELS)}
        return cls(loopback_address(kernel, attempt), ports, key, kernel_name=kernel_name)

    def to_json(self) -> dict[str, Any]:
        """The content of a Jupyter connection file."""
        return {
            **self.extra,
            "transport": "tcp",
            "ip": self.ip,
            **{f"{channel}_port": port for channel, port in self.ports.items()},
            "key": self.key,
            "signature_scheme": self.signature_scheme,
            "kernel_name": self.kernel_name,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Endpoint:
        known = {"transport", "ip", "key", "signature_scheme", "kernel_name", *(f"{c}_port" for c in CHANNELS)}
        return cls(
            ip=str(data["ip"]),
            ports={channel: int(data[f"{channel}_port"]) for channel in CHANNELS},
            key=str(data["key"]),
            signature_scheme=str(data.get("signature_scheme", "hmac-sha256")),
            kernel_name=str(data.get("kernel_name", "")),
            extra={name: value for name, value in data.items() if name not in known},
        )
