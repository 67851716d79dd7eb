"""Fleets of unmodified controllers behind proxies, and the judges of what they did."""
