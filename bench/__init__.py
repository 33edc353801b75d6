"""Every figure the README claims, each by one command, beside its peers: `python -m bench all`."""
