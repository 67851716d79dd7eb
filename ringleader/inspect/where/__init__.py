"""`ringleader where`: who owns an object, or each of many, and who should."""
