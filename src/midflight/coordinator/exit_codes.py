"""How a coordinator's process ends, besides with the exit code of its job.

Only the store can tell the end of a job from an accident: a job that failed ends with 1, and so
does a Python program that crashed.
"""

CRASHED = 1  # an error that nobody expected; another coordinator can take the job up
REFUSED = 2  # what it was started with is wrong, and it never began to serve
REPLACED = 3  # another coordinator has taken the job over
