"""The launcher: starts a run's coordinator and agents on this machine, and keeps them going."""
