//go:build tools

// Package tools names the command that is built, so that `go mod tidy` keeps what it needs.
package tools

import (
	_ "github.com/argoproj/argo-rollouts/cmd/rollouts-controller"
)
