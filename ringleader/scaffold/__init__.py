"""`ringleader init`: the words of a new project, and the files that are made of them."""
