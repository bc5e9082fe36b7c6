//go:build !unix

// Package unprivileged runs the servers of tests for root: they refuse to run as root themselves.
package unprivileged

import (
	"os"
	"syscall"
)

// Account is always the user who runs the test.
type Account struct{}

// For is always the zero value.
func For(string) (Account, error) { return Account{}, nil }

// Attributes are the usual ones.
func (Account) Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// MakeFolder is os.MkdirTemp.
func (Account) MakeFolder(parent, pattern string) (string, error) {
	return os.MkdirTemp(parent, pattern)
}
