"""One agent per host: starts, signals and reaps the members in its slots. Never imports torch."""
