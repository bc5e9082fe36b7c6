//go:build !unix

package postgrestest

import (
	"os"
	"syscall"
)

// account is always the user who runs the test.
type account struct{}

func serverAccount() (account, error) { return account{}, nil }

func (account) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func (account) makeFolder(parent string) (string, error) {
	return os.MkdirTemp(parent, "waybill-postgres-*")
}
