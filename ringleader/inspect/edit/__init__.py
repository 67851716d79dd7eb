"""Commands that change a ring: cordon, uncordon, weight, pause, resume, release."""
