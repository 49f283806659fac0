"""How a repository is reached and kept, beside its address. The same for all commands and for the agent."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StoreSettings:
    """Settings of `Repository.open`. Sizes in bytes, times in seconds; an empty text means "not set"."""

    s3_endpoint: str = ""
    """Address of an S3 server that isn't AWS's."""
    s3_region: str = ""
    s3_path_style: bool = False
    """Bucket in the path rather than in the host's name, as most servers other than AWS's want it."""
    s3_concurrency: int = 8
    """Transfers at once."""
    s3_timeout_s: float = 30.0
    """A server that is silent for so long is taken for gone."""
    key_file: str = ""
    """The encryption key, in a file of mode 0600. At most one of key_file, key_variable, key_command."""
    key_variable: str = ""
    """… in this environment variable."""
    key_command: str = ""
    """… printed by this command."""
    tier: str = ""
    """Folder on this host's disk for recent blocks of a remote repository."""
    tier_bytes: int = 20 << 30


DEFAULTS = StoreSettings()
