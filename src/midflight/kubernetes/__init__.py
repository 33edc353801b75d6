"""Midflight on Kubernetes: the client layer, the resources, the operator, the verbs, the install.

`api` talks to the API server; `resources`, `manifests` and `pods` are pure; `operator` reconciles
jobs; `client` and `verbs` serve the command line; `install` puts the operator on a cluster.
"""
