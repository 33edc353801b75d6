"""Training frameworks on Midflight's runtime: their trainers, made elastic.

Each folder is for one framework, which only it imports, and has the names that a script uses in
place of the framework's own. What a step is, whose the samples are and when the world changes is
decided by `runtime`; here is only where a framework's loop calls it.
"""
