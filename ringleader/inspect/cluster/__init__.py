"""What is read of a cluster for people: rings, lives, objects with their keys, Events, pages of replicas."""
