"""What every program of ours has around its work: words, logs, signals, probes, one line for each failure."""
