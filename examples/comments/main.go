// Comments sends digests: a post has followers, and twelve comments in ten minutes become one mail for each
// follower instead of twelve.
//
// A comment and its notifications, one for each follower, are stored in one transaction. The metadata of a
// notification names the follower, and the setting collect of the sink makes one mail of what a follower
// has got, once there is no further comment for some time. The templates see all comments of a mail as
// .Items. What waits for its mail is in the database, so a restart loses none.
//
//	go run ./examples/comments
//	go run ./examples/comments -wait 10m
//
// It exits with code 1 if a follower gets another number of mails.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

//go:embed templates
var templates embed.FS

// CommentPosted is the notification of a follower about a comment. The templates use its JSON names.
type CommentPosted struct {
	Post   string `json:"post"`
	Author string `json:"author"`
	Text   string `json:"text"`
}

// followers are those of the post.
var followers = []string{"ann@example.com", "bob@example.com", "cleo@example.com"}

func main() {
	wait := flag.Duration("wait", 2*time.Second, "how long a mail waits for the next comment")
	between := flag.Duration("between", 100*time.Millisecond, "the time between two comments")
	flag.Parse()
	slog.SetLogLoggerLevel(slog.LevelWarn) // the output shows the rest
	if err := run(context.Background(), *wait, *between, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "comments:", err)
		os.Exit(1)
	}
}

// run posts comments and prints the mails about them.
func run(ctx context.Context, wait, between time.Duration, out io.Writer) error {
	folder, err := os.MkdirTemp("", "comments")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, err := sqlite.OpenDB(filepath.Join(folder, "comments.db"))
	if err != nil {
		return err
	}
	defer db.Close()
	server, err := smtptest.Start(smtptest.Config{})
	if err != nil {
		return err
	}
	defer server.Close()

	b := &blog{db: db, outbox: waybill.SQLite(db, waybill.SQLiteConfig{})}
	if err := b.assemble(ctx, server.URL(), wait); err != nil {
		return err
	}
	forwarding, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.outbox.Run(forwarding) }()
	err = b.discuss(ctx, server, wait, between, out)
	stop() // Run returns once the deliveries in flight are settled
	return errors.Join(err, <-ended)
}

// blog stores comments and mails them to the followers of the post.
type blog struct {
	db     *sql.DB
	outbox *waybill.Outbox
}

// assemble declares what is mailed, and creates the tables.
func (b *blog) assemble(ctx context.Context, smtp string, wait time.Duration) error {
	o := b.outbox
	waybill.Register[CommentPosted](o, "comment.posted", waybill.Key(func(c CommentPosted) string { return c.Post }))
	mail, err := email.New(sinks.Instance{Name: "mail"}, email.Config{SMTP: smtp, From: "Blog <blog@example.com>", FS: templates, Templates: "templates"})
	if err != nil {
		return err
	}
	sink := o.Deliver("mail", mail, "comment.posted")
	sink.Collect.By, sink.Collect.Wait = "metadata.recipient", wait
	if err := o.Migrate(ctx); err != nil {
		return err
	}
	_, err = b.db.ExecContext(ctx, `CREATE TABLE comments (post text, author text, comment text)`)
	return err
}

// post stores a comment, and one notification for each follower.
func (b *blog) post(ctx context.Context, c CommentPosted) error {
	return b.outbox.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO comments VALUES ($1, $2, $3)`, c.Post, c.Author, c.Text); err != nil {
			return err
		}
		for _, follower := range followers {
			if err := b.outbox.Publish(ctx, tx, waybill.With(c, waybill.Metadata("recipient", follower))); err != nil {
				return err
			}
		}
		return nil
	})
}

// discuss posts twelve comments, and another one after their mails. It returns an error if there are not two mails for
// each follower.
func (b *blog) discuss(ctx context.Context, server *smtptest.Server, wait, between time.Duration, out io.Writer) error {
	for i := range 12 {
		author := []string{"Dan", "Eve"}[i%2]
		if err := b.post(ctx, CommentPosted{"kites", author, fmt.Sprint("comment ", i+1)}); err != nil {
			return err
		}
		time.Sleep(between)
	}
	fmt.Fprintln(out, "12 comments")
	if err := printMails(ctx, server, 0, wait, out); err != nil {
		return err
	}
	if err := b.post(ctx, CommentPosted{"kites", "Dan", "comment 13"}); err != nil {
		return err
	}
	fmt.Fprintln(out, "1 comment")
	return printMails(ctx, server, len(followers), wait, out)
}

// printMails waits for one mail for each follower, after the first ones, and prints them.
func printMails(ctx context.Context, server *smtptest.Server, first int, wait time.Duration, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, wait+30*time.Second)
	defer cancel()
	if err := server.Wait(ctx, first+len(followers)); err != nil {
		return fmt.Errorf("wait for the mails: %w", err)
	}
	mails := server.Messages()[first:]
	slices.SortFunc(mails, func(a, b smtptest.Message) int { return cmp.Compare(a.To[0], b.To[0]) })
	for i, m := range mails {
		text, err := m.Text()
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		fmt.Fprintf(out, "mail to %s: %s: %q", m.To[0], m.Subject(), strings.TrimSpace(lines[0]))
		if n := len(lines); n > 1 {
			fmt.Fprintf(out, " … %q", strings.TrimSpace(lines[n-1]))
		}
		fmt.Fprintln(out)
		if i >= len(followers) || m.To[0] != followers[i] {
			return fmt.Errorf("a follower has got %d mails instead of one", len(mails))
		}
	}
	return nil
}
