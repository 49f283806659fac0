"""A repository in an S3 bucket.

Every object is written by one plain PUT: a pack has 80 MiB at most and S3 takes 5 GiB, so a multipart upload would only add parts
that a killed publisher leaves behind where nobody sees them. A PUT is visible when whole. Conditions are S3's own (If-None-Match,
If-Match); store/s3probe.py finds out whether the server keeps to them. Nothing is repeated here: see store/retry.py.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from urllib3.exceptions import HTTPError

from . import s3client, s3errors
from .backend import Absent, Bytes, Changed, Entry, Stat
from .settings import StoreSettings


class S3Backend:
    """Objects of `bucket` below `prefix` ("" or without a slash at its ends). Tags are ETags."""

    def __init__(self, bucket: str, prefix: str, settings: StoreSettings) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._settings = settings

    @property
    def url(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def get(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        key = self._key(name)
        if length == 0:
            self.stat(name)
            return b""
        last = "" if length is None else str(start + length - 1)
        wanted = {"Range": f"bytes={start}-{last}"} if start or length is not None else {}
        with self._asking("read", name) as client:
            try:
                answer = client.get_object(Bucket=self._bucket, Key=key, **wanted)
                with answer["Body"] as body:
                    return bytes(body.read())
            except ClientError as error:
                code = s3errors.code_of(error)
                if code in s3errors.ABSENT:
                    raise Absent(name) from None
                if code in s3errors.OUT_OF_RANGE:
                    return b""
                raise

    def put(self, name: str, data: Bytes, *, if_absent: bool = False, if_match: str | None = None) -> str:
        key = self._key(name)
        condition = {"IfNoneMatch": "*"} if if_absent else {} if if_match is None else {"IfMatch": if_match}
        digest = base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
        body = bytes(data) if isinstance(data, memoryview) else data
        with self._asking("write", name) as client:
            try:
                answer = client.put_object(Bucket=self._bucket, Key=key, Body=body, ContentMD5=digest, **condition)
            except ClientError as error:
                code = s3errors.code_of(error)
                if condition and (code in s3errors.CHANGED or code in s3errors.ABSENT):
                    raise Changed(name) from None
                raise
            return str(answer["ETag"])

    def stat(self, name: str) -> Stat:
        key = self._key(name)
        with self._asking("read", name) as client:
            try:
                answer = client.head_object(Bucket=self._bucket, Key=key)
            except ClientError as error:
                code = s3errors.code_of(error)
                if code in s3errors.ABSENT:
                    raise Absent(name) from None
                if code in ("400", "403"):  # an answer to HEAD has no room for the reason
                    client.get_object(Bucket=self._bucket, Key=key, Range="bytes=0-0")["Body"].close()
                raise
            return Stat(int(answer["ContentLength"]), str(answer["ETag"]))

    def list(self, prefix: str) -> Iterator[Entry]:
        key = self._key(prefix)
        entries: list[Entry] = []
        with self._asking("list", prefix) as client:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=key, Delimiter="/"):
                entries += [Entry(self._name(found["Prefix"]), 0) for found in page.get("CommonPrefixes", ())]
                entries += [Entry(self._name(found["Key"]), int(found["Size"])) for found in page.get("Contents", ())]
        # A key that equals the prefix is what consoles make when one asks them for a folder.
        seen = [entry for entry in entries if entry.name != prefix and not entry.name[len(prefix) :].startswith(".")]
        yield from sorted(seen, key=lambda entry: entry.name.rstrip("/"))

    def delete(self, name: str) -> None:
        key = self._key(name)
        with self._asking("delete from", name) as client:
            client.delete_object(Bucket=self._bucket, Key=key)

    def _key(self, name: str) -> str:
        parts = [part for part in name.split("/") if part]
        if any(part.startswith(".") or "\0" in part for part in parts) or name.startswith("/"):
            raise ValueError(f"not an object's name: {name!r}")
        return self._prefix + name

    def _name(self, key: Any) -> str:
        return str(key)[len(self._prefix) :]

    @contextmanager
    def _asking(self, verb: str, name: str) -> Iterator[Any]:
        """A client, when fewer than the allowed number of transfers run."""
        try:
            connections = s3client.connect(self._settings)
            with connections.slots:
                yield connections.client
        except (BotoCoreError, ClientError, HTTPError, OSError, ValueError) as error:
            if s3errors.is_about_credentials(error):
                s3client.forget(self._settings)
            raise s3errors.failure(error, verb, self.url, self._bucket, name) from error
