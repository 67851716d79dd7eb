"""Access to an API server: kubeconfig, in-cluster configuration, credentials that renew themselves."""
