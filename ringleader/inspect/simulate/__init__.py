"""`ringleader simulate`: what would move if members came, went or changed their weight."""
