"""Decision for one object, and its patch. Pure but for reading controllers (protocol 3, 6)."""
