"""Where a kernel lives: processes with an identity, the sandbox, and what this process may do on this host."""
