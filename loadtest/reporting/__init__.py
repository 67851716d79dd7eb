"""What a run found: the verdict's figures, one JSON document, one HTML page."""
