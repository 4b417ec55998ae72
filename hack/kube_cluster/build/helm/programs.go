//go:build programs

// Package helm names the programs that are built, so that go mod tidy keeps what they need.
package helm

import (
	_ "helm.sh/helm/v4/cmd/helm"
)
