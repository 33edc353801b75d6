"""Where KungFu's scripts find its hook."""
