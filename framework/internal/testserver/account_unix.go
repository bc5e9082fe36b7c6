//go:build unix

// Package testserver has what the temporary servers of tests share. It lets tests that run as root start
// servers that refuse to run as root.
package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// Account is the user who runs the server: the current user (the zero value), or an unprivileged
// user if that is root.
type Account struct {
	credential *syscall.Credential
}

// AccountFor returns the account for a server: if the current user is root, the user with the server's
// usual name, or the user "nobody".
func AccountFor(server string) (Account, error) {
	if os.Geteuid() != 0 {
		return Account{}, nil
	}
	for _, name := range []string{server, "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return Account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return Account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return Account{}, fmt.Errorf("the server does not run as root, and there is no user %[1]q or \"nobody\" to run it as; useradd --system %[1]s makes one", server)
}

// Attributes makes a command run as the account. The result is never nil.
func (a Account) Attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential}
}

// MakeFolder makes a temporary folder, as os.MkdirTemp does, that belongs to the account, in parent
// or, if that is empty, in the system's folder for temporary files. If an unprivileged user cannot
// enter that folder, it uses /tmp.
func (a Account) MakeFolder(parent, pattern string) (string, error) {
	if parent == "" {
		parent = os.TempDir()
		if !a.canEnter(parent) {
			parent = "/tmp"
		}
	}
	if !a.canEnter(parent) {
		return "", fmt.Errorf("user %d, who runs the server instead of root, cannot enter %s; name another folder", a.credential.Uid, parent)
	}
	folder, err := os.MkdirTemp(parent, pattern)
	if err != nil {
		return "", err
	}
	if a.credential == nil {
		return folder, nil
	}
	if err := os.Chown(folder, int(a.credential.Uid), int(a.credential.Gid)); err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	return folder, nil
}

// canEnter reports whether every user may enter the folder and all folders above it.
func (a Account) canEnter(folder string) bool {
	if a.credential == nil {
		return true
	}
	folder, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return false
	}
	for {
		info, err := os.Stat(folder)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return true
		}
		folder = parent
	}
}
