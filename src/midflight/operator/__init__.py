"""The operator: the one loop around the controller where instances are pods.

`mirror.py` keeps what the API server says, `keeper.py` looks after one job whenever something about
it has changed, `hands.py` does what is to be done, `leading.py` sees to it that only one operator
does. What is decided is decided in `controller/` and, for pods and scale objects, in the pure parts
of `backends/kubernetes/`.
"""
