"""A real Kubernetes for the tests: its own control plane, and nodes that run pods as processes.

`binaries` finds or builds the programs, `control` starts etcd, API server, controller-manager and
scheduler on loopback, `nodes` starts process nodes beside them. `python -m tests.kubernetes.plane
up` does all of it in the foreground. Nothing here is part of Midflight, and nothing of Midflight
is known here: whatever a pod or a client may ask of a cluster is answered by the real API server.
"""
