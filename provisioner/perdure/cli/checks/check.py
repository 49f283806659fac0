"""One thing that was looked at."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Check:
    """What was `found`, what that `means`, and the command or step that mends it (`fix`, empty when it is `ok`)."""

    name: str
    ok: bool
    found: str
    means: str
    fix: str = ""
    needed: bool = True
    """Without it no kernel is protected here; else it costs only what `means` says."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Check:
        """One of the agent's or of the runtime's; fields that we don't know are left out."""
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})
