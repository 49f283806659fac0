"""Bytes -> snapshots, as docs/format.md says. `repository.Repository` is what the rest of Perdure uses."""
