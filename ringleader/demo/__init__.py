"""`ringleader demo`: a fleet shares objects while its processes are broken on purpose, and two witnesses judge it."""
