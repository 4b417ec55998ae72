//go:build programs

// Package etcd names the programs that are built, so that go mod tidy keeps what they need.
package etcd

import (
	_ "go.etcd.io/etcd/server/v3"
)
