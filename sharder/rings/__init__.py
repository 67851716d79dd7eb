"""Rings that come, change and go: the store of each, its components composed and started, its status written."""
