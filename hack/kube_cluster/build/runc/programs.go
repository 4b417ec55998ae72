//go:build programs

// Package runc names the programs that are built, so that go mod tidy keeps what they need.
package runc

import (
	_ "github.com/opencontainers/runc"
)
