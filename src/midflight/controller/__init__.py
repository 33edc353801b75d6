"""What becomes of jobs: pure decisions, for this machine and for Kubernetes alike."""
