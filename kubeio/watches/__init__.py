"""Lists and watches that never end, and stores that they keep equal to the server."""
