"""What is loaded: a fleet of our own on a control plane of our own, or a cluster with what is deployed there."""
