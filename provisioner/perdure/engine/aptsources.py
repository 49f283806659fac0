"""Where this machine gets its distribution's packages from, as its own apt says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perdure.domain.errors import NotProtected


@dataclass(frozen=True)
class Distribution:
    name: str
    codename: str
    """Of the release that runs here."""
    suite: str
    """Which release to take CRIU from when nobody says otherwise: the first stable one that has a good one."""
    components: tuple[str, ...]
    keyrings: tuple[str, ...]


_KNOWN = {
    "debian": ("forky", ("main",), ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp")),
    "ubuntu": ("resolute", ("main", "universe"), ("ubuntu-archive-keyring.gpg",)),
}
_KEYRINGS = Path("usr/share/keyrings")


def distribution(root: Path = Path("/")) -> Distribution:
    """Raises NotProtected when it is neither Debian nor Ubuntu, nor like them."""
    try:
        text = (root / "etc/os-release").read_text()
    except FileNotFoundError:
        text = ""
    fields = {name: value.strip("\"'") for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)}
    for name in [fields.get("ID", ""), *fields.get("ID_LIKE", "").split()]:
        if name in _KNOWN:
            codename = fields.get(f"{name.upper()}_CODENAME") or fields.get("VERSION_CODENAME", "")
            return Distribution(name, codename, *_KNOWN[name])
    raise NotProtected(
        f"CRIU can be installed by itself on Debian and Ubuntu only, this is {fields.get('PRETTY_NAME', 'another system')}.",
        hint="Install CRIU 4.2 or newer with this system's own means; PERDURE_CRIU names it.",
    )


def keyring(found: Distribution, root: Path = Path("/")) -> Path:
    """The distribution's own keys, which the packages' signatures are checked with."""
    for name in found.keyrings:
        path = root / _KEYRINGS / name
        if path.is_file():
            return path
    raise NotProtected(
        f"The signing keys of {found.name} are missing here.", hint=f"`apt-get install {found.name}-archive-keyring` brings them."
    )


def mirrors(found: Distribution, root: Path = Path("/")) -> list[str]:
    """URIs of the archive that this machine's release comes from, in apt's order."""
    folder = root / "etc/apt"
    uris = []
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(errors="replace")
        entries = _deb822(text) if path.suffix == ".sources" else _one_line(text) if path.suffix == ".list" else iter(())
        uris += [uri for uri, suites, components in entries if found.codename in suites and found.components[0] in components]
    if not uris:
        raise NotProtected(
            f"apt's sources name no mirror of {found.name} {found.codename}.",
            hint="Add one, or install CRIU 4.2 or newer by hand; PERDURE_CRIU names it.",
        )
    return list(dict.fromkeys(uris))


def _one_line(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for line in text.splitlines():
        words = re.sub(r"\[[^\]]*\]", "", line.partition("#")[0]).split()
        if len(words) >= 4 and words[0] == "deb":
            yield words[1], [words[2]], words[3:]


def _deb822(text: str) -> Iterator[tuple[str, list[str], list[str]]]:
    text = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", text):
        unfolded = re.sub(r"\n[ \t]+", " ", stanza)
        fields = {name.lower(): value.split() for name, value in re.findall(r"^([\w-]+):(.*)$", unfolded, re.MULTILINE)}
        if "deb" not in fields.get("types", ()) or fields.get("enabled", ["yes"])[0].lower() in ("no", "false", "0"):
            continue
        for uri in fields.get("uris", ()):
            yield uri, fields.get("suites", []), fields.get("components", [])
