"""Which API server, and as whom: kubeconfig, pod, credentials that renew themselves."""
