package operate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/store"
)

// needsMasterKey is the end of the help of commands that find a person's keys.
const needsMasterKey = `SUBJECT is the person as the application names them; - reads it from standard input, so that it
is neither in the history of the shell nor in the list of processes.

It needs the section privacy of the configuration, with the master key, and the database.`

// person finds the keys of persons.
type person struct {
	*operator
	keys *privacy.Keyring
}

// openPerson opens the outbox with its keys.
func (l *looking) openPerson(cmd *cobra.Command) (*person, func(), error) {
	o, cleanup, err := l.open(cmd)
	if err != nil {
		return nil, nil, err
	}
	source, err := l.One(cmd, l.Flags)
	var c *config.Config
	if err == nil {
		c, err = config.LoadPrivacy(source, l.Options)
	}
	if err == nil && !c.Privacy.On() {
		err = &command.UsageError{Err: errors.New("privacy is not configured: set privacy.keys or privacy.master, which find a person's keys")}
	}
	var keys *privacy.Keyring
	if err == nil {
		keys, err = privacy.New(o.store, c.PrivacyConfig())
	}
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return &person{o, keys}, cleanup, nil
}

// subjectOf returns the argument, or the first line of standard input for -.
func subjectOf(cmd *cobra.Command, args []string) (string, error) {
	subject := args[0]
	if subject == "-" {
		line, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		subject = strings.TrimRight(line, "\r\n")
	}
	if subject == "" {
		return "", command.WrongUsage(cmd, errors.New("SUBJECT is empty: name the person as the application does"))
	}
	return subject, nil
}

func newFind(p *command.Invocation) *cobra.Command {
	l := lookingFor(p)
	cmd := &cobra.Command{
		Use:   "find SUBJECT",
		Short: "Count where private values of a person stand",
		Long: `Count the keys of a person, and what the tables have of notifications with values that
these keys encrypt, also after an erasure; and rows of types with privacy.rules, in which the
log and parked deliveries have the values as they were inserted.

` + needsMasterKey,
		Args: command.Arguments(1, "SUBJECT is missing: name the person as the application does, or - to read it from standard input"),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		subject, err := subjectOf(cmd, args)
		if err != nil {
			return err
		}
		o, cleanup, err := l.openPerson(cmd)
		if err != nil {
			return err
		}
		defer cleanup()
		plan, err := o.Erase(cmd.Context(), o.keys, subject)
		if err != nil {
			return err
		}
		return l.Show(command.Look{View: map[string]any{"keys": plan.Keys, "counts": plan.Counts, "plain": plan.Plain}, Print: func(io.Writer) { showErase(&l, plan) }})
	}
	l.Add(cmd)
	return cmd
}

func showErase(l *looking, plan *admin.ErasePlan) {
	terminal.Printf(l.Stdout, "%s\n", command.CountText(int64(plan.Keys), "key", "keys"))
	showPersonal(l, plan.Counts)
	if plan.Plain > 0 {
		terminal.Printf(l.Stdout, "%s of types with privacy.rules, not encrypted\n", command.CountText(plan.Plain, "row", "rows"))
	}
	if plan.Source != "" {
		terminal.Printf(l.Stdout, "the log is %s: what its records have unencrypted stays\n", plan.Source)
	}
}

// erase is a command that erases private values.
type erase struct {
	bulk
	file string
}

func newErase(p *command.Invocation) *cobra.Command {
	c := &erase{bulk: bulk{acting: acting{lookingFor(p)}}}
	cmd := &cobra.Command{
		Use:   "erase {SUBJECT | --keys FILE}",
		Short: "Erase the private values of a person",
		Long: `Destroy the keys that encrypt the private values of a person. The log, parked deliveries,
exports, backups, and topics and files that got the values encrypted are unreadable at once,
for good. Errors, receipts and answers of notifications with such values are removed, and
rows of types with privacy.rules lose the values. Notifications stay: what is not delivered
yet is delivered without the values, or is dead, as the setting erased of its sink says.

Processes that remember the keys can decrypt for as long as privacy.cache says. What was
already delivered decrypted is out of reach. The action is recorded without the person.

After a backup was restored, --keys erases again what had been erased since: FILE has the
ids that waybill privacy erased printed before, one in a line. That needs no master key.

The command shows what it would erase and asks first; scripts use --yes.

` + needsMasterKey,
		Example: `  waybill privacy erase customer-42 --dry-run
  echo customer-42 | waybill privacy erase - --yes
  waybill privacy erase --keys erased.txt`,
		Args: func(cmd *cobra.Command, args []string) error {
			if c.file != "" {
				return command.NoArguments(cmd, args)
			}
			return command.Arguments(1, "SUBJECT is missing: name the person as the application does, or - to read it from standard input")(cmd, args)
		},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.file != "" {
			return c.again(cmd)
		}
		return c.act(cmd, args)
	}
	c.Add(cmd)
	cmd.Flags().StringVar(&c.file, "keys", "", "erase the keys with the ids in this file instead, such as after a restore; - is standard input")
	return cmd
}

func (c *erase) act(cmd *cobra.Command, args []string) error {
	subject, err := subjectOf(cmd, args)
	if err != nil {
		return err
	}
	if err := c.check(cmd); err != nil {
		return err
	}
	o, cleanup, err := c.openPerson(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	plan, err := o.Erase(cmd.Context(), o.keys, subject)
	if err != nil {
		return err
	}
	if !c.JSON {
		showErase(&c.looking, plan)
	}
	operation, _ := admin.Named(admin.OnDeliveries, "erase")
	return c.run(cmd, plan, words{Operation: operation, one: "key or row", many: "keys and rows",
		next: func(store.Action) string { return "run the command again to go on" }}, map[string]any{"keys": plan.Keys, "counts": plan.Counts, "plain": plan.Plain})
}

// maxKeyIDs bounds the file of --keys.
const maxKeyIDs = 64 << 20

func (c *erase) again(cmd *cobra.Command) error {
	from := cmd.InOrStdin()
	if c.file != "-" {
		file, err := os.Open(c.file)
		if err != nil {
			return &command.UsageError{Err: fmt.Errorf("--keys: %w", err)}
		}
		defer file.Close()
		from = file
	}
	text, err := io.ReadAll(io.LimitReader(from, maxKeyIDs))
	if err != nil {
		return fmt.Errorf("--keys: %w", err)
	}
	ids := strings.Fields(string(text))
	for _, id := range ids {
		if !privacy.IsKeyID(id) {
			return &command.UsageError{Err: fmt.Errorf("--keys: %q is no id of a key: use what waybill privacy erased has printed", store.CutText(id, 40))}
		}
	}
	return c.inOne(cmd, func(o *operator) (command.Look, error) {
		if c.dryRun {
			return command.Look{View: map[string]int{"keys": len(ids)}, Print: func(w io.Writer) { terminal.Printf(w, "%s\n", command.CountText(int64(len(ids)), "key", "keys")) }}, nil
		}
		erased, err := o.EraseKeys(cmd.Context(), ids)
		return command.Look{View: map[string]int{"keys": len(ids), "erased": erased}, Print: func(w io.Writer) {
			terminal.Printf(w, "erased %d of %s; the others were erased already\n", erased, command.CountText(int64(len(ids)), "key", "keys"))
		}}, err
	})
}

func newErased(p *command.Invocation) *cobra.Command {
	l := lookingFor(p)
	cmd := &cobra.Command{
		Use:   "erased",
		Short: "Print the ids of erased keys",
		Long: `Print the ids of all erased keys, one in a line. They say nothing about persons. Keep them
outside of the database: after a backup was restored, waybill privacy erase --keys erases
them again.

` + command.NeedsDatabaseOnly,
		Args: command.NoArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return l.inOne(cmd, func(o *operator) (command.Look, error) {
			ids, err := o.ErasedKeys(cmd.Context())
			return command.Look{View: append([]string{}, ids...), Print: func(w io.Writer) {
				for _, id := range ids {
					terminal.Printf(w, "%s\n", id)
				}
			}}, err
		})
	}
	l.Add(cmd)
	return cmd
}

func newRotate(p *command.Invocation) *cobra.Command {
	a := acting{lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "rotate",
		Short: "Wrap the keys with the present master key",
		Long: `Wrap the root keys of the outbox with the first of privacy.keys, or with the present version
of privacy.master. The older master key is not needed any more after it. Neither the log nor
the keys of persons are touched, and forwarders and publishers can go on.

It needs the section privacy of the configuration, with both master keys, and the database.`,
		Args: command.NoArguments,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, cleanup, err := a.openPerson(cmd)
		if err != nil {
			return err
		}
		defer cleanup()
		n, err := rotate(cmd.Context(), o)
		if err != nil {
			return err
		}
		return a.Show(command.Look{View: map[string]int{"roots": n}, Print: func(w io.Writer) {
			terminal.Printf(w, "wrapped %s\n", command.CountText(int64(n), "root key", "root keys"))
		}})
	}
	a.Add(cmd)
	return cmd
}

func rotate(ctx context.Context, o *person) (n int, err error) {
	err = o.Record(ctx, "rotate keys", struct{}{}, func() error {
		n, err = o.keys.Rotate(ctx)
		return err
	})
	return n, err
}
