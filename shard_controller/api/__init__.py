"""The interface for users: `Controller`, `Context`, `Conditions`."""
