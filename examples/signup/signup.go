package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/mail"

	"github.com/google/uuid"
	"golang.org/x/text/language"

	"github.com/waybill-go/waybill/framework/event"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/outbox"
)

// usersTable creates the application's table, in SQL that SQLite and PostgreSQL share.
const usersTable = `CREATE TABLE IF NOT EXISTS users (
	id     text PRIMARY KEY,
	name   text NOT NULL,
	email  text NOT NULL UNIQUE,
	status text NOT NULL DEFAULT 'Pending'
)`

var errTaken = errors.New("this email address has already signed up")

// CustomerSignedUp is the notification. The templates use its JSON names.
type CustomerSignedUp struct {
	UserID string `json:"user_id"`
	Name   string `json:"name"`
	Email  string `json:"email"`
	// Locale is the language that the browser prefers; "" if it names none.
	Locale string `json:"locale"`
	// InvitedBy gets a copy of the mail; "" if there is no inviter.
	InvitedBy string `json:"invited_by"`
}

// Key keeps the notifications of a user in order.
func (c CustomerSignedUp) Key() string { return c.UserID }

// signups is the HTTP handler of signups.
type signups struct {
	db        *sql.DB
	publisher *outbox.Publisher
}

// ServeHTTP expects JSON with name and email. It answers 202 once the user is stored. It does not
// wait for the mail server, so the mail is sent later.
func (s *signups) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var form struct {
		Name, Email string
		InvitedBy   string `json:"invited_by"`
	}
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&form)
	// Refuse an address that no mail server would accept, while the user can still correct it.
	if err != nil || !isAddress(form.Email) || form.Name == "" || (form.InvitedBy != "" && !isAddress(form.InvitedBy)) {
		http.Error(w, "send JSON with a name and an email address", http.StatusBadRequest)
		return
	}
	err = s.add(r.Context(), CustomerSignedUp{
		UserID: uuid.NewString(), Name: form.Name, Email: form.Email, Locale: preferred(r), InvitedBy: form.InvitedBy,
	})
	switch {
	case err == nil:
		w.WriteHeader(http.StatusAccepted)
	case errors.Is(err, errTaken):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		slog.Error("signup failed", "error", err)
		http.Error(w, "please try again later", http.StatusInternalServerError)
	}
}

func isAddress(text string) bool {
	_, err := mail.ParseAddress("<" + text + ">")
	return err == nil
}

// preferred returns the language that a browser prefers, or "" if the header is missing or invalid:
// the mail would fail on an invalid language.
func preferred(r *http.Request) string {
	tags, _, err := language.ParseAcceptLanguage(r.Header.Get("Accept-Language"))
	if err != nil || len(tags) == 0 {
		return ""
	}
	return tags[0].String()
}

// add stores the user and publishes the notification in one transaction. It publishes first, to
// show that the sequence does not matter: if the address has already signed up, the rollback
// removes the notification, and no mail is sent.
func (s *signups) add(ctx context.Context, c CustomerSignedUp) error {
	return s.publisher.RunInTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := s.publisher.Publish(ctx, tx, c); err != nil {
			return err
		}
		result, err := tx.ExecContext(ctx,
			`INSERT INTO users (id, name, email) VALUES ($1, $2, $3) ON CONFLICT (email) DO NOTHING`, c.UserID, c.Name, c.Email)
		if err != nil {
			return err
		}
		if inserted, err := result.RowsAffected(); err != nil || inserted == 1 {
			return err
		}
		return errTaken
	})
}

// markQueued and markSent run in the transaction that parks or settles the deliveries. A user is
// Queued while the mail waits for its next attempt, and Sent from the commit that settles its
// delivery. Both can be called twice for a delivery after a crash, so they are idempotent.
func markQueued(ctx context.Context, tx *sql.Tx, parked []event.Parked) error {
	for _, p := range parked {
		if _, err := tx.ExecContext(ctx, `UPDATE users SET status = 'Queued' WHERE id = $1 AND status = 'Pending'`, p.Key); err != nil {
			return err
		}
	}
	return nil
}

func markSent(ctx context.Context, tx *sql.Tx, delivered []forwarder.Delivered) error {
	for _, d := range delivered {
		if _, err := tx.ExecContext(ctx, `UPDATE users SET status = 'Sent' WHERE id = $1`, d.Key); err != nil {
			return err
		}
	}
	return nil
}
