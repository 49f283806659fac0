"""Connections to S3 servers: boto3's client, made from our settings and the standard credential chain, and kept.

A client takes 0.2 s to make, and an agent opens its repositories again and again. Credentials that were refused are read anew at
the next opening: what renews them may be a file that boto3 reads only once.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from .settings import StoreSettings

_CONNECT_S = 10.0


@dataclass(frozen=True)
class Connections:
    """boto3's client, and the right to use it, for as many at once as the settings say."""

    client: Any
    slots: threading.BoundedSemaphore


_Key = tuple[str, str, bool, int, float]
_clients: dict[_Key, Connections] = {}
_lock = threading.Lock()


def connect(settings: StoreSettings) -> Connections:
    """Those of this process for these settings. Raises botocore's errors; nothing is sent yet."""
    key = _key(settings)
    with _lock:
        if key not in _clients:
            _clients[key] = Connections(_make(settings), threading.BoundedSemaphore(settings.s3_concurrency))
        return _clients[key]


def forget(settings: StoreSettings) -> None:
    """The next `connect` reads the credentials anew."""
    with _lock:
        _clients.pop(_key(settings), None)


def _key(settings: StoreSettings) -> _Key:
    return (
        settings.s3_endpoint,
        settings.s3_region,
        settings.s3_path_style,
        settings.s3_concurrency,
        settings.s3_timeout_s,
    )


def _make(settings: StoreSettings) -> Any:
    import boto3  # here: half a second that a repository in a folder need not wait for
    from botocore.config import Config

    session = boto3.session.Session(region_name=settings.s3_region or None)
    config = Config(
        region_name=session.region_name or "us-east-1",  # servers other than AWS's take any; AWS's says which it is
        connect_timeout=min(_CONNECT_S, settings.s3_timeout_s),
        read_timeout=settings.s3_timeout_s,
        max_pool_connections=settings.s3_concurrency,
        # store/retry.py does that: boto3 would repeat a conditional put and take its own first attempt for somebody else's.
        retries={"total_max_attempts": 1, "mode": "standard"},
        s3={"addressing_style": "path" if settings.s3_path_style else "auto"},
        # Trailing checksums are news to many servers; Content-MD5 is known to all.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        user_agent_extra="perdure",
    )
    return session.client("s3", endpoint_url=settings.s3_endpoint or None, config=config)
