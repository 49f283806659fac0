"""An S3 server that runs as long as a test run, and buckets in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
from perdure.store.settings import StoreSettings

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Nothing of the machine's own AWS settings."""


@contextmanager
def serving() -> Iterator[str]:
    """The endpoint of a server of its own."""
    command = [sys.executable, str(Path(__file__).with_name("moto_server.py"))]
    with subprocess.Popen(command, env={**os.environ, **ENVIRONMENT}, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def make_bucket(endpoint: str, name: str) -> str:
    client = boto3.client(
        "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
    )
    client.create_bucket(Bucket=name)
    client.close()
    return name


def settings(endpoint: str, *, timeout_s: float = 20.0) -> StoreSettings:
    return StoreSettings(s3_endpoint=endpoint, s3_path_style=True, s3_timeout_s=timeout_s)
