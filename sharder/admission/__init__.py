"""Assignment at admission, an option (protocol, section 6.7): an object is created with its owner, in one write.

A mutating webhook that every sharder serves, and that the API server passes by when it does not answer in time. The
unowned watch assigns the objects that it leaves alone. Safety: docs/adr/0007.
"""
