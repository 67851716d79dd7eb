"""`ringleader migrate`: takes objects over that another framework has marked."""
