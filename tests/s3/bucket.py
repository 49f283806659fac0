"""A repository in a bucket, with short calls for tests."""

from __future__ import annotations

from pathlib import Path

import boto3
from perdure.domain.ids import Generation, KernelId
from perdure.store.repository import Manifest, Repository, SourceFile
from perdure.store.settings import StoreSettings

KERNEL = KernelId("kernel-1")


class Bucket:
    """The repository as Perdure sees it through `settings`; `objects` looks at the server itself, at `endpoint`."""

    def __init__(self, url: str, settings: StoreSettings, endpoint: str, folder: Path) -> None:
        self.url, self.settings, self.folder = url, settings, folder
        self.client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="test", aws_secret_access_key="test"
        )
        self._fetched = 0

    def at(self, name: str) -> Bucket:
        """Another repository, below this one's place."""
        folder = self.folder / name
        folder.mkdir()
        return Bucket(f"{self.url}/{name}", self.settings, self.client.meta.endpoint_url, folder)

    @property
    def repository(self) -> Repository:
        return Repository.open(self.url, settings=self.settings)

    def publish(self, files: dict[str, bytes]) -> Manifest:
        sources = []
        for name, data in files.items():
            path = self.folder / f"source-{name}"
            path.write_bytes(data)
            sources.append(SourceFile(name, path, 0o600))
        return self.repository.publish(KERNEL, sources, lambda _: {})

    def fetch(self, generation: int) -> dict[str, bytes]:
        self._fetched += 1
        into = self.folder / f"fetched-{self._fetched}"
        self.repository.fetch(KERNEL, Generation(generation), into)
        return {path.name: path.read_bytes() for path in into.iterdir()}

    def objects(self) -> set[str]:
        """Every key below the repository's place, the probe's too."""
        _, _, bucket, prefix = self.url.split("/", 3)
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return {found["Key"].removeprefix(f"{prefix}/") for page in pages for found in page.get("Contents", ())}

    def litter(self) -> set[str]:
        """What belongs to nothing that is published."""
        claims = {self.repository.manifest(KERNEL, number).claim for number in self.repository.generations(KERNEL)}
        folder = f"kernels/{KERNEL}"
        found = self.objects() - {"repository", f"{folder}/head"}
        return {name for name in found if not any(f"/{claim}" in name for claim in claims)}
