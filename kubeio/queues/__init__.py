"""Work queues with client-go's semantics and metrics."""
