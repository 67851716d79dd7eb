"""A ring as a person wrote it: read, checked, frozen. Pure; everything else reads it from here."""
