"""Keys of sealed repositories: where they come from, and what is derived from them (docs/format.md, "Sealed objects").

What goes wrong in the world: a secret isn't mounted, a template leaves a setting empty, a copied line lacks its end, everybody
can read the file. Whoever wanted encryption must never get plain text instead: whatever isn't a complete key is an error.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from perdure.domain.errors import NoKey

from . import keycommand
from .settings import StoreSettings

KEY_BYTES = 32
ID_BYTES = 16
_ID_CONTEXT = "perdure 2026-12 key id"
_OBJECT_CONTEXT = "perdure 2026-12 object key"
_LINE = re.compile(r"perdure-key-1:([0-9a-f]{32}):([0-9a-f]{64})")
_LARGEST = 64 << 10
"""Bytes: hundreds of keys. What is larger is another file."""
_OTHERS = 0o077
ENVIRONMENT = ("PERDURE_KEY_FILE", "PERDURE_KEY_COMMAND", "PERDURE_KEY")
"""Variables from which the applications take their settings. The last one holds the key itself."""


@dataclass(frozen=True)
class Key:
    """A master key. Its bytes are in no message and no repr."""

    secret: bytes = field(repr=False)

    @property
    def id(self) -> bytes:
        """16 bytes that name it and say nothing of it."""
        return blake3(self.secret, derive_key_context=_ID_CONTEXT).digest(ID_BYTES)

    @property
    def text(self) -> str:
        return f"perdure-key-1:{self.id.hex()}:{self.secret.hex()}"

    def for_object(self, salt: bytes) -> bytes:
        """The key of the one object that has this salt."""
        return blake3(self.secret + salt, derive_key_context=_OBJECT_CONTEXT).digest(KEY_BYTES)


@dataclass(frozen=True)
class Keys:
    """One or more; the first one writes, all read."""

    all: tuple[Key, ...]

    @property
    def writing(self) -> Key:
        return self.all[0]

    def find(self, id: bytes) -> Key | None:
        return next((key for key in self.all if key.id == id), None)


def new() -> Key:
    return Key(secrets.token_bytes(KEY_BYTES))


def load(settings: StoreSettings, environment: Mapping[str, str] = os.environ) -> Keys | None:
    """The configured keys; None where none are configured, in the environment neither. Raises NoKey."""
    check(settings, environment)
    if settings.key_file:
        return from_file(Path(settings.key_file))
    if settings.key_variable:
        where = f"The environment variable {settings.key_variable}"
        if settings.key_variable not in environment:
            raise NoKey(f"{where}, which should hold the repository's key, is not set.", hint=_HINT)
        return parse(where, environment[settings.key_variable])
    if settings.key_command:
        return parse("What the key command printed", keycommand.output(settings.key_command))
    return None


def check(settings: StoreSettings, environment: Mapping[str, str] = os.environ) -> None:
    """Raises NoKey for settings that contradict each other, whether or not the key can be had."""
    given = [
        name
        for name, value in (
            ("a key file", settings.key_file),
            ("a key variable", settings.key_variable),
            ("a key command", settings.key_command),
        )
        if value
    ]
    if len(given) > 1:
        raise NoKey(
            f"The repository's key is configured more than once: {' and '.join(given)}.",
            hint="Keep one of them; a key file can hold several keys.",
        )
    named = [name for name in ENVIRONMENT if name in environment]
    if not given and named:
        # Set and empty, or set for a program that takes no notice of it: either way somebody wanted encryption.
        raise NoKey(f"{named[0]} is set in the environment, but gives no key.", hint="Set it to what it should be, or unset it.")


def from_file(path: Path) -> Keys:
    """Raises NoKey: the file can't be read, is none, is open to others, or holds anything but keys."""
    where = f"The key file {path}"
    try:
        # Never waits, should it be a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise NoKey(f"{where} is not a regular file.", hint=_HINT)
            if found.st_mode & _OTHERS or found.st_uid not in (0, os.geteuid()):
                raise NoKey(
                    f"{where} is open to others: owner {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}.",
                    hint=f"Whoever could read it has the key. Make a new one, and keep it closed: chmod 600 {path}",
                )
            text = os.read(fd, _LARGEST + 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise NoKey(f"{where} can't be read: {os.strerror(error.errno or 0)}.", hint=_HINT, detail=str(error)) from error
    return parse(where, text.decode("utf-8", "replace"))


def parse(where: str, text: str) -> Keys:
    """One key per line. `where` begins the sentence of the NoKey that it raises; the text itself never gets into one."""
    if len(text) > _LARGEST:
        raise NoKey(f"{where} is too long to be keys.", hint=_HINT)
    keys: list[Key] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        matched = _LINE.fullmatch(stripped)
        if matched is None:
            raise NoKey(f"{where} has something in line {number} that is not a key.", hint=_HINT)
        key = Key(bytes.fromhex(matched[2]))
        if key.id.hex() != matched[1]:
            raise NoKey(f"{where} has a key in line {number} that is not the one that it was.", hint="Was it copied in full?")
        if key not in keys:
            keys.append(key)
    if not keys:
        raise NoKey(f"{where} holds no key.", hint=_HINT)
    return Keys(tuple(keys))


_HINT = "`perdure key new FILE` makes a key file."
