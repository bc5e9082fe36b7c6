// Comments sends a mail to each follower of a comment's author. One notification goes in,
// one for each mail comes out, all in one transaction: none of them is missing, and none
// is published twice. From there on each mail is on its own: grace's mail server is busy at
// first, and only her mail is tried again. The mails show the author, as an inline image.
//
//	go run ./examples/comments
//
// It ends with code 1 if a follower does not get one mail for each comment.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/waybill-go/waybill"
	"github.com/waybill-go/waybill/framework/store/sqlite"
	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/email"
	"github.com/waybill-go/waybill/sinks/email/smtptest"
)

//go:embed templates
var templates embed.FS

// The notifications. The JSON of MailDue is what the templates see.
type (
	CommentPosted struct{ Author, Text string }
	MailDue       struct {
		To     string `json:"to"`
		Author string `json:"author"`
		Text   string `json:"text"`
	}
)

var comments = []CommentPosted{{"ada", "It works!"}, {"ada", "And it is fast."}}

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // the output tells the rest
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "comments:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
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
	_, err = db.ExecContext(ctx, `CREATE TABLE followers (author TEXT, email TEXT);
		INSERT INTO followers VALUES ('ada', 'charles@example.com'), ('ada', 'grace@example.com'), ('ada', 'linus@example.com')`)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	post, err := startPostOffice(out, stop)
	if err != nil {
		return err
	}
	defer post.Close()
	mail, err := email.New(sinks.Instance{Name: "mail"},
		email.Config{SMTP: post.URL(), From: "Comments <comments@example.com>", FS: templates, Templates: "templates"})
	if err != nil {
		return err
	}

	o := waybill.SQLite(db, waybill.SQLiteConfig{})
	waybill.Register[CommentPosted](o, "comment.posted")
	waybill.Register[MailDue](o, "mail.due")
	waybill.HandleTx(o, "followers", func(ctx context.Context, tx *sql.Tx, c CommentPosted) error {
		mails, err := mailsOf(ctx, tx, c)
		if err != nil {
			return err
		}
		return o.Publish(ctx, tx, mails...)
	})
	o.Deliver("mail", mail, "mail.due").Retry.Initial = 100 * time.Millisecond
	if err := o.Migrate(ctx); err != nil {
		return err
	}
	for _, c := range comments {
		err := o.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return o.Publish(ctx, tx, c) })
		if err != nil {
			return err
		}
	}
	if err := o.Run(ctx); err != nil {
		return err
	}
	return check(post.Messages())
}

// mailsOf is a mail for each follower of the comment's author.
func mailsOf(ctx context.Context, tx *sql.Tx, c CommentPosted) (mails []any, err error) {
	rows, err := tx.QueryContext(ctx, `SELECT email FROM followers WHERE author = ?`, c.Author)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		m := MailDue{Author: c.Author, Text: c.Text}
		if err := rows.Scan(&m.To); err != nil {
			return nil, err
		}
		mails = append(mails, m)
	}
	return mails, rows.Err()
}

// startPostOffice starts a mail server, which is busy for grace at first. done is called at
// the last mail.
func startPostOffice(out io.Writer, done func()) (*smtptest.Server, error) {
	var busy atomic.Bool
	busy.Store(true)
	var taken atomic.Int32
	return smtptest.Start(smtptest.Config{
		OnRecipient: func(_ context.Context, to string) error {
			if to == "grace@example.com" && busy.Swap(false) {
				return smtptest.Reply(450, "4.2.1 come back later")
			}
			return nil
		},
		OnMessage: func(_ context.Context, m smtptest.Message) error {
			fmt.Fprintf(out, "mail to %s: %s\n", m.To[0], m.Subject())
			if taken.Add(1) == 6 {
				done()
			}
			return nil
		},
	})
}

// check counts the mails, and looks for the image in each of them.
func check(mails []smtptest.Message) error {
	var wrong []error
	count := make(map[string]int)
	for _, m := range mails {
		count[m.To[0]]++
		if !bytes.Contains(m.Raw, []byte("Content-Id: <")) {
			wrong = append(wrong, fmt.Errorf("the mail to %s has no image", m.To[0]))
		}
	}
	for _, name := range []string{"charles", "grace", "linus"} {
		if n := count[name+"@example.com"]; n != len(comments) {
			wrong = append(wrong, fmt.Errorf("%s got %d mails about %d comments", name, n, len(comments)))
		}
	}
	return errors.Join(wrong...)
}
