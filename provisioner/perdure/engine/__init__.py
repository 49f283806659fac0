"""Stops, saves and starts a process tree. Knows CRIU and /proc; knows nothing of repositories, sandboxes' making or Jupyter."""
