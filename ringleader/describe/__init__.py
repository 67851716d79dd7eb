"""`ringleader describe`: one object or one ring, with its cause first."""
