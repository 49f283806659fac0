"""`StoreSettings` as traits: set by `c.Store.NAME` in a configuration file, by `--Store.NAME`, else by the environment.

One section for the agent and for every verb, so that who verifies a repository reaches it as who writes it does.
"""

from __future__ import annotations

import os
from dataclasses import fields

from traitlets import Bool, Float, Int, TraitError, Unicode
from traitlets.config import Config, Configurable

from perdure.domain.errors import BadRequest

from .settings import DEFAULTS, StoreSettings

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class Store(Configurable):
    """Each trait is the field of `StoreSettings` of that name; $PERDURE_NAME sets it where no configuration does."""

    s3_endpoint = Unicode(help="Address of an S3 server other than AWS's, http(s)://host:port.").tag(config=True)
    s3_region = Unicode(help="Region of the bucket. Empty: what the AWS settings of this account say.").tag(config=True)
    s3_path_style = Bool(
        DEFAULTS.s3_path_style,
        help="The bucket is in the path and not in the host's name; most servers other than AWS's want it.",
    ).tag(config=True)
    s3_concurrency = Int(DEFAULTS.s3_concurrency, min=1, max=256, help="Transfers at once.").tag(config=True)
    s3_timeout_s = Float(
        DEFAULTS.s3_timeout_s, min=0.1, help="A server that is silent for so many seconds is taken for gone."
    ).tag(config=True)
    key_file = Unicode(help="The encryption key, in a file of mode 0600. At most one of the three.").tag(config=True)
    key_variable = Unicode(help="The encryption key is in the environment variable of this name.").tag(config=True)
    key_command = Unicode(help="The encryption key is what this command prints.").tag(config=True)

    @property
    def settings(self) -> StoreSettings:
        return StoreSettings(
            **{field.name: getattr(self, field.name) for field in fields(StoreSettings) if self.has_trait(field.name)}
        )


def settings_of(config: Config) -> StoreSettings:
    """Those of an application's configuration. Raises BadRequest."""
    try:
        store = Store(config=config)
        given = config.get("Store", {})
        for name in store.trait_names(config=True):
            value = os.environ.get(f"PERDURE_{name.upper()}")
            if value and name not in given:
                setattr(store, name, _parsed(store, name, value))
    except (TraitError, ValueError) as error:
        raise BadRequest(
            f"A setting of the repository is wrong: {error}", hint="See c.Store in the configuration, and PERDURE_…."
        ) from error
    return store.settings


def _parsed(store: Store, name: str, text: str) -> object:
    """Raises ValueError, TraitError."""
    trait = store.traits()[name]
    if isinstance(trait, Bool):
        if text.lower() not in _YES | _NO:
            raise ValueError(f"PERDURE_{name.upper()} is {text!r} and not 1 or 0")
        return text.lower() in _YES
    if isinstance(trait, Int):
        return int(text)
    if isinstance(trait, Float):
        return float(text)
    return text
