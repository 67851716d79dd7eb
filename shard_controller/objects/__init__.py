"""The replica's own view of objects, and its writes: caches, watermarks, fenced patches."""
