"""torchrun as its users know it, over the elastic core.

Every torchrun process is an agent of one run, and one of them carries the coordinator too. Which
one that is, and who takes over when it dies, is decided by the rendezvous: `c10d` (the processes
among themselves) or `etcd` (a lease in a real etcd).
"""
