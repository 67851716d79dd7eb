"""Simulation of an autoscaled fleet: the real ring, the autoscaler's algorithm, work as a fluid."""
