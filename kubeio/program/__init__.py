"""Shared parts of every program of ours: command line, logs, signals, probes, one line for each failure."""
