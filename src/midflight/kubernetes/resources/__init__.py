"""What a job object means, whoever wrote it: its spec, its templates, its labels. Pure."""
