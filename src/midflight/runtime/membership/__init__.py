"""Membership of a job: the line to the coordinator, its orders, and the way into the next world."""
