//go:build unix

package postgrestest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user who runs the server: we ourselves (the zero value), or,
// since initdb and postgres refuse to run as root, an unprivileged user.
type account struct {
	credential *syscall.Credential
}

// serverAccount leaves root for the first of these users that exists.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return account{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as; useradd --system postgres makes one")
}

// attributes makes a command run as the account. The result is never nil.
func (a account) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: a.credential}
}

// makeFolder makes a temporary folder that belongs to the account, in parent or,
// where that is empty, in the system's folder for such. An unprivileged user may
// be unable to enter that one, so /tmp stands in for it.
func (a account) makeFolder(parent string) (string, error) {
	if parent == "" {
		parent = os.TempDir()
		if !a.canEnter(parent) {
			parent = "/tmp"
		}
	}
	if !a.canEnter(parent) {
		return "", fmt.Errorf("user %d, who runs the server in root's place, cannot enter %s; name another folder", a.credential.Uid, parent)
	}
	folder, err := os.MkdirTemp(parent, "waybill-postgres-*")
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

// canEnter reports whether the folder and all above it let every user through.
func (a account) canEnter(folder string) bool {
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
