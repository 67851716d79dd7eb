"""`ringleader dashboard`: the live page from a laptop, fed by what a kubeconfig may read."""
