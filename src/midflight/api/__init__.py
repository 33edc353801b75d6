"""What the verbs of the command line do, for Python: `midflight.Client`.

`client` asks, `arguments` makes specs of what was given, `results` is what comes back.
"""
