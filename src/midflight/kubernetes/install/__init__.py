"""The operator's own objects, put into a cluster and taken out again."""
