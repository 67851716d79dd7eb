"""Events to keys, keys to reconciles: event handlers, worker, runner, finalizers, resync."""
