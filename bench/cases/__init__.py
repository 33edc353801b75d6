"""Each case is one repeat of a measurement: something happens to a fleet, its steps tell."""
