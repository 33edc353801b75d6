"""From a submitted spec to the objects that say the same to a cluster. Pure."""
