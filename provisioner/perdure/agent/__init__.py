"""The privileged daemon of a host: where engine, runtime and store meet, and the only code that runs as root."""
