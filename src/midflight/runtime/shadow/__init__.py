"""The shadow join: a newcomer takes part without a share until it has caught up."""
