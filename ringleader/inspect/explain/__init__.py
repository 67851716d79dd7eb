"""`ringleader explain`: what is known of one object, the cause that explains it, and the story."""
