package program

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/crypto/bcrypt"

	"github.com/waybill-go/waybill/framework/program/internal/command"
)

// maxPassword is how many bytes of a password bcrypt uses.
const maxPassword = 72

func newPassword(p *command.Invocation) *cobra.Command {
	return &cobra.Command{
		Use:   "password",
		Short: "Print the bcrypt hash of a password, for observe.auth.users",
		Long: `Read a password from standard input, up to the end of the line, and print its bcrypt
hash. A configuration may have the hash instead of the password, as
observe.auth.users.NAME.password. Put it in quotes; its $ signs need no escaping.`,
		Example: `  systemd-ask-password | waybill config password`,
		Args:    command.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4096))
			if err != nil {
				return err
			}
			password, _, _ := strings.Cut(string(text), "\n")
			password = strings.TrimSuffix(password, "\r")
			switch {
			case password == "":
				return command.WrongUsage(cmd, errors.New("there is no password on stdin"))
			case len(password) > maxPassword:
				return command.WrongUsage(cmd, fmt.Errorf("the password is longer than %d bytes, the most that bcrypt uses", maxPassword))
			}
			hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.DefaultCost)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "%s\n", hash)
			return err
		},
	}
}
