"""The fence in the API server: its policies for one ring, and the command that prints them."""
