"""Words and flags of the commands that look into rings; the work is in the folders beside."""
