package migration

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3/database"
)

// SQL returns the statements of all files, for people who use their own migration tool. Each file
// begins with its name and ends with the statement that records its version, so that Check succeeds
// afterwards and a later Up continues from there. The statements neither begin nor commit a
// transaction.
func (s Set) SQL() (string, error) {
	files, err := s.files()
	if err != nil {
		return "", err
	}
	versions, err := s.versions()
	if err != nil {
		return "", err
	}
	var out recorder
	if err := versions.CreateVersionTable(context.Background(), &out); err != nil {
		return "", err
	}
	if err := versions.Insert(context.Background(), &out, database.InsertRequest{Version: 0}); err != nil {
		return "", err
	}
	for _, f := range files {
		text, err := fs.ReadFile(rendered{s.Files, s.Data}, f.name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "\n-- %s\n%s", f.name, upStatements(string(text)))
		if err := versions.Insert(context.Background(), &out, database.InsertRequest{Version: f.version}); err != nil {
			return "", err
		}
	}
	return out.String(), nil
}

// upStatements returns the statements between Up and Down, without goose's annotations.
func upStatements(text string) string {
	var b strings.Builder
	up := false
	for line := range strings.Lines(text) {
		annotation, isAnnotation := strings.CutPrefix(strings.TrimSpace(line), "-- +goose ")
		switch {
		case isAnnotation && strings.EqualFold(annotation, "Up"):
			up = true
		case isAnnotation && strings.EqualFold(annotation, "Down"):
			up = false
		case up && !isAnnotation:
			b.WriteString(line)
		}
	}
	return strings.Trim(b.String(), "\n") + "\n"
}

// recorder records the statements that goose would execute to record its versions.
type recorder struct{ strings.Builder }

var _ database.DBTxConn = (*recorder)(nil)

var placeholder = regexp.MustCompile(`\$\d+|\?`)

// ExecContext writes the statement with its arguments inserted. goose passes version numbers and
// true, in the order of the placeholders.
func (r *recorder) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	statement := placeholder.ReplaceAllStringFunc(query, func(string) string {
		value := args[0]
		args = args[1:]
		return fmt.Sprint(value)
	})
	fmt.Fprintf(r, "%s;\n", strings.ReplaceAll(statement, "\n\t", "\n"))
	return nil, nil
}

// QueryContext is never called, since nothing is read.
func (r *recorder) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, sql.ErrConnDone
}

// QueryRowContext is never called.
func (r *recorder) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }
