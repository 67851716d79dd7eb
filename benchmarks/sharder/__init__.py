"""`make bench-sharder`: one sharder beside the limit of the API server, row by row."""
