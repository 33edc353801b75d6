"""Horovod's API on Midflight, for the cases: the same launcher, another script."""

from pathlib import Path

from bench.midflight_case import Midflight

HOROVOD = Midflight("horovod", Path(__file__).with_name("horovod_train.py"))
