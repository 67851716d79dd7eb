"""`ringleader demo`: a fleet shares objects while its processes are broken, and two independent checks judge it."""
