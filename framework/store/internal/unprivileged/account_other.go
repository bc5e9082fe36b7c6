//go:build !unix

// Package unprivileged lets tests that run as root start servers that refuse to run as root.
package unprivileged

import (
	"os"
	"syscall"
)

// Account is the user who runs the test.
type Account struct{}

// For returns the zero value.
func For(string) (Account, error) { return Account{}, nil }

// Attributes returns the usual ones.
func (Account) Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// MakeFolder is os.MkdirTemp.
func (Account) MakeFolder(parent, pattern string) (string, error) {
	return os.MkdirTemp(parent, pattern)
}
