"""One shard's Lease: its name, its renewal, what proves the end of an earlier one, and the end of the process."""
