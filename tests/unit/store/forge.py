"""Objects that nobody wrote: well-formed lies for the readers."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

from blake3 import blake3
from perdure.store import envelope

_FIELDS = struct.Struct("<8s4sHH16sQQ32s")


def forge(whole: bytes, *, body: bytes | None = None, **fields: Any) -> bytes:
    """`whole` with another body or other header fields, and digests that match."""
    names = ("magic", "kind", "version", "flags", "key", "fence", "length", "digest")
    values = dict(zip(names, _FIELDS.unpack_from(whole), strict=True))
    body = whole[envelope.SIZE :] if body is None else body
    values |= {"length": len(body), "digest": blake3(body).digest(), **fields}
    header = _FIELDS.pack(*(values[name] for name in names))
    return header + blake3(header).digest(16) + body


def edit(path: Path, change: dict[str, Any]) -> None:
    """Replace keys of a JSON object in the repository."""
    whole = path.read_bytes()
    data = json.loads(whole[envelope.SIZE :])
    path.write_bytes(forge(whole, body=json.dumps({**data, **change}).encode()))
