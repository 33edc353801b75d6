"""What stands on PYTHONPATH: packages under their old names. Each hands over to `compat`."""
