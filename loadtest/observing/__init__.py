"""What a load test measures: by one watch from outside, by metrics and /proc from inside."""
