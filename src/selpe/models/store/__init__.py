"""Where weights come from and are kept: by content hash, from this machine, the hub or the package index."""
