// Pins controller-runtime, the peer in Go of `make bench-runtime`.
module ringleader.dev/loadtest/controller-runtime-peer

go 1.26.0

require (
	golang.org/x/sys v0.40.0
	k8s.io/apimachinery v0.37.0
	sigs.k8s.io/controller-runtime v0.25.2
)
