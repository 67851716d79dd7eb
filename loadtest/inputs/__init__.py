"""What a person writes for a load test: scenario, template of the objects, service level. Pure."""
