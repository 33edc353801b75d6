"""The operator: the reconcile loop for jobs whose instances are pods.

`informer.py` and `cache.py` hold what the API server says, `place.py` is what the loop
(`backends/loop.py`) needs of the cluster for one job, `executor.py` carries out what was decided,
and `leader_election.py` makes sure that one operator leads. `decision.py`, `observed.py` and
`scale_requests.py` are pure: they decide, on top of `midflight.controller`.
"""
