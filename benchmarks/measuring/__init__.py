"""Shared parts of the benchmarks on a control plane: testbed, objects, processes, limit, report. No goals here."""
