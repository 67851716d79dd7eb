"""What should be written to one object, and the patch that it is. Pure but for reading controllers (protocol 3, 6)."""
