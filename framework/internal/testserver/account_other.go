//go:build !unix

// Package testserver has what the temporary servers of tests share. It lets tests that run as root start
// servers that refuse to run as root.
package testserver

import (
	"os"
	"syscall"
)

// Account is the user who runs the test.
type Account struct{}

// AccountFor returns the zero value.
func AccountFor(string) (Account, error) { return Account{}, nil }

// Attributes returns the usual ones.
func (Account) Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// MakeFolder is os.MkdirTemp.
func (Account) MakeFolder(parent, pattern string) (string, error) {
	return os.MkdirTemp(parent, pattern)
}
