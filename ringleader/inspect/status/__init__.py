"""`ringleader status`: rings and members, once or again and again."""
