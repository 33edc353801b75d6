"""The pods of a job, and what has to be there before them. Pure."""
