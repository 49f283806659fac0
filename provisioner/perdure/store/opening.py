"""From an address to a backend: the one place where backends and what is wrapped around them are put together."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from perdure.domain.errors import BadRequest, StoreFailed

from . import durable
from .backend import Backend
from .local import LocalBackend, failure
from .settings import StoreSettings

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_ASIDE = ".probe"


def open_backend(url: str, *, create: bool, settings: StoreSettings) -> Backend:
    """`file:///path`, whose folder is made if `create`; `s3://bucket/prefix`, whose bucket must exist.

    Raises BadRequest, StoreFailed; with `create` also when the store ignores conditional puts.
    """
    parts = urlsplit(url)
    if parts.scheme == "s3" and not parts.query and not parts.fragment:
        return _s3(parts.netloc, unquote(parts.path).strip("/"), url, create=create, settings=settings)
    return _local(_path(url), create=create)


def _s3(bucket: str, prefix: str, url: str, *, create: bool, settings: StoreSettings) -> Backend:
    components = prefix.split("/") if prefix else []
    if not _BUCKET.fullmatch(bucket) or any(not one or one.startswith(".") or "\0" in one for one in components):
        raise BadRequest(f"{url!r} is not a repository's address.", hint="It is a bucket and a place in it: s3://bucket/prefix.")
    from .retry import Retrying
    from .s3 import S3Backend
    from .s3probe import Proven

    aside = Retrying(S3Backend(bucket, "/".join((*components, _ASIDE)), settings))
    backend = Proven(Retrying(S3Backend(bucket, prefix, settings)), aside, f"{settings.s3_endpoint} {bucket}/{prefix}")
    if create:
        backend.prove_if_possible()
    return backend


def _path(url: str) -> Path:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if (
        parts.scheme != "file"
        or parts.netloc not in ("", "localhost")
        or not path.startswith("/")
        or parts.query
        or parts.fragment
    ):
        raise BadRequest(
            f"{url!r} is not a repository's address.",
            hint="It is a folder, file:///absolute/path, or a bucket, s3://bucket/prefix.",
        )
    return Path(path)


def _local(path: Path, *, create: bool) -> LocalBackend:
    try:
        if create and not path.is_dir():
            anchor = path
            while not anchor.is_dir() and anchor != anchor.parent:
                anchor = anchor.parent
            durable.make_folders(path, anchor)
        if not path.is_dir():
            raise StoreFailed(f"There is no repository at {path}.", hint="Is the file system mounted?")
    except OSError as error:
        raise failure(error, "make", path) from error
    return LocalBackend(path)
