"""`ringleader report`: one HTML file to attach to a ticket."""
