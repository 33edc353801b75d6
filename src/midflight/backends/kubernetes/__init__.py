"""Jobs on Kubernetes: what is pure (manifests, what an object means, status) and what is not."""
