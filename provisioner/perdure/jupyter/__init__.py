"""The thin edge to Jupyter: it translates calls and holds no privilege. Knows `wire` and `domain` only."""
