"""`ringleader list`: many objects, a line for each, as they come."""
