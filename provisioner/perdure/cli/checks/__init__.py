"""What `perdure doctor` looks at, one file per part of the host; nothing is changed and nobody is asked for privilege."""
