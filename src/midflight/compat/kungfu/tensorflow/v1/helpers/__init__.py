"""Helpers of KungFu's examples."""
