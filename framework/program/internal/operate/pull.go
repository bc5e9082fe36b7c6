package operate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/contract"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/archive"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newTypesPull(p *command.Invocation) *cobra.Command {
	l := &pull{looking: lookingFor(p)}
	cmd := &cobra.Command{
		Use:   "pull DIR",
		Short: "Write a schema of each type that is found in the log, inferred from its payloads",
		Long: `Write a JSON Schema of each version of each type in the last rows of the log, for
consumers whose publisher gives none, to the same files as waybill types export.

The schemas are inferred: a field is required if all rows have it, may be null if it is
null in one, and is a date-time if all its texts are RFC 3339 times. Objects with more
than 100 different members, or with members whose names look like data, become maps.
They have the names of fields, but no values. Each says in its description that it is
inferred, and from how many rows. Look it over before you rely on it.

A type whose schema the program or waybill.yaml has gets that one. A file that has a
schema of the publisher, as types export writes it, stays; an inferred one is replaced.
Payloads that are not JSON are left out and counted.

--from reads a file of waybill export instead of the database, also one that ends with
.gz or .zst.`,
		Example: `  waybill types pull schemas
  waybill types pull schemas --database postgres://reader@localhost/shop --all
  waybill types pull schemas --from 2026-03-01.jsonl.gz`,
		Args: command.Arguments(1, "name the folder to write to, such as schemas"),
		RunE: l.run,
	}
	l.Add(cmd)
	cmd.Flags().IntVar(&l.rows, "rows", 100_000, "how many of the last rows of the log to read, roughly")
	cmd.Flags().BoolVar(&l.all, "all", false, "read the whole log")
	cmd.Flags().StringVar(&l.from, "from", "", "read a file that waybill export wrote")
	return cmd
}

type pull struct {
	looking
	rows  int
	all   bool
	from  string
	found contract.Inference
}

// pulled is what --json prints.
type pulled struct {
	Contracts int            `json:"contracts"`
	Written   []string       `json:"written"`
	Kept      []string       `json:"kept"`    // files with a schema that was not inferred
	Skipped   map[string]int `json:"skipped"` // payloads that are not JSON, by type and version
}

func (l *pull) run(cmd *cobra.Command, args []string) (err error) {
	source, read, limited := l.Source(l.Flags), l.readFile, cmd.Flags().Changed("rows")
	switch {
	case l.rows < 1:
		return command.WrongUsage(cmd, fmt.Errorf("--rows is %d: use at least 1, or --all", l.rows))
	case l.all && limited, l.from != "" && (l.all || limited || l.Flags.Database != ""):
		return command.WrongUsage(cmd, errors.New("--all reads the whole log, --rows its end, and --from a file instead of a database: use one of them"))
	case l.from == "":
		read = l.readLog
		if source, err = l.One(cmd, l.Flags); err != nil {
			return err
		}
	}
	loaded, err := config.LoadTypes(source, l.Options)
	if err != nil {
		return err
	}
	given, err := loaded.Contracts()
	if err != nil {
		return err
	}
	if err := read(cmd); err != nil {
		return cmp.Or(cmd.Context().Err(), err)
	}
	found, skipped, err := l.found.Contracts(given)
	if err != nil {
		return err
	}
	done := pulled{len(found.All()), []string{}, []string{}, skipped}
	if err := done.write(found, args[0]); err != nil {
		return err
	}
	return l.Show(command.Look{View: done, Print: func(w io.Writer) { done.print(w, args[0]) }})
}

// write writes the contracts, except inferred ones in place of others.
func (p *pulled) write(found *contract.Set, folder string) error {
	for _, c := range found.All() {
		text, err := os.ReadFile(filepath.Join(folder, c.FileName()))
		if about, wrong := contract.Read(c.Type, c.Version, text); err == nil && c.Inferred > 0 && (wrong != nil || about.Inferred == 0) {
			p.Kept = append(p.Kept, c.FileName())
			continue
		}
		one := new(contract.Set)
		if err := one.Add(c.About, c.Text); err != nil {
			return err
		}
		written, err := one.Write(folder)
		if err != nil {
			return err
		}
		p.Written = append(p.Written, written...)
	}
	return nil
}

func (p *pulled) print(w io.Writer, folder string) {
	for _, name := range p.Written {
		terminal.Println(w, "wrote", name)
	}
	for _, name := range p.Kept {
		terminal.Printf(w, "kept %s, whose schema was not inferred: remove the file to replace it\n", name)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Skipped)) {
		terminal.Printf(w, "left out %s of %s: not JSON\n", command.CountText(int64(p.Skipped[name]), "payload", "payloads"), name)
	}
	terminal.Printf(w, "%s in %s\n", command.CountText(int64(p.Contracts), "contract", "contracts"), folder)
}

func (l *pull) readFile(*cobra.Command) error {
	return archive.Read(l.from, func(line *archive.Line) error {
		if err := notification.ValidateType(line.Type); err != nil {
			return err
		}
		if line.Version < 1 {
			return fmt.Errorf("the version is %d", line.Version)
		}
		payload := []byte(line.Payload)
		if line.Base64 != nil {
			payload = *line.Base64
		}
		l.found.Add(line.Type, line.Version, line.Key != "", payload)
		return nil
	})
}

func (l *pull) readLog(cmd *cobra.Command) error {
	o, cleanup, err := l.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	after, since, err := l.begin(cmd, o)
	if err == nil {
		_, err = o.Export(cmd.Context(), admin.ExportRequest{From: since}, func(e *admin.Exported) error {
			if e.Offset > after {
				l.found.Add(e.Type, e.Version, e.Key != "", e.Payload)
			}
			return nil
		}, nil)
	}
	return err
}

// around is how many rows decide when the last rows began, since the log is not quite in the order of time.
const around = 100

// begin returns the offset after which the last rows are, and when they began, so that the database need not
// send those before.
func (l *pull) begin(cmd *cobra.Command, o *operator) (after int64, since time.Time, err error) {
	newest, err := o.Browse(cmd.Context(), admin.LogFilter{}, 0, 1)
	if err == nil && !l.all && len(newest.Rows) > 0 {
		after = max(0, newest.Rows[0].Offset-int64(l.rows))
	}
	if err != nil || after == 0 {
		return 0, since, err
	}
	first, err := o.Browse(cmd.Context(), admin.LogFilter{}, after+around, around)
	for _, row := range first.Rows {
		if since.IsZero() || row.OccurredOn.Before(since) {
			since = row.OccurredOn
		}
	}
	return after, since, err
}
