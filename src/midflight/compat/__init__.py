"""Drop-ins: programs written for Horovod, TorchElastic and KungFu, on Midflight's runtime.

Each folder has the names that such programs import or run, and nothing else; what they mean is
decided by the elastic core below. `shims` puts them on the path of processes that Midflight starts.
"""
