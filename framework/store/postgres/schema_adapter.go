package postgres

import (
	"database/sql"
	"errors"
	"fmt"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/store"
)

const (
	maxParameters    = 65535 // of one statement in the PostgreSQL protocol
	insertParameters = 8     // of one row
)

// MaxAppend is how many notifications one INSERT can carry.
func (s *Store) MaxAppend() int { return maxParameters / insertParameters }

// SchemaAdapter lets Watermill's SQL publisher append to the log. It is for
// publishing only: the log is read by the store, not by Watermill's subscriber.
func (s *Store) SchemaAdapter() watermillsql.SchemaAdapter {
	return schemaAdapter{table: s.sql.prefix, binary: s.binary}
}

type schemaAdapter struct {
	table  string
	binary bool
}

var errPublishOnly = errors.New("the outbox's schema adapter is for publishing only")

// InsertQuery appends all messages with one statement. The topic is not used:
// each message carries its type. See store.NewMessage.
func (a schemaAdapter) InsertQuery(_ string, messages message.Messages) (watermillsql.Query, error) {
	q := statement{args: make([]any, 0, insertParameters*len(messages))}
	q.WriteString(`INSERT INTO ` + a.table + ` (id, type, version, key, occurred_on, deliver_at, metadata, payload) VALUES `)
	for i, m := range messages {
		e, err := store.EnvelopeOf(m)
		if err != nil {
			return watermillsql.Query{}, err
		}
		metadata, err := store.EncodeMetadata(e.Metadata)
		if err != nil {
			return watermillsql.Query{}, fmt.Errorf("message %s: metadata: %w", e.ID, err)
		}
		if i > 0 {
			q.WriteString(", ")
		}
		q.row(e.ID, e.Type, e.Version, e.Key, e.OccurredOn, nullTime(e.DeliverAt), metadata, payloadArg(e.Payload, a.binary))
	}
	return watermillsql.Query{Query: q.String(), Args: q.args}, nil
}

// row adds a parenthesized list of placeholders.
func (q *statement) row(args ...any) {
	for i, v := range args {
		if i == 0 {
			q.WriteString("(")
		} else {
			q.WriteString(", ")
		}
		q.WriteString(q.arg(v))
	}
	q.WriteString(")")
}

// payloadArg hands JSON over as text: some drivers send bytes as a bytea literal.
func payloadArg(payload []byte, binary bool) any {
	if binary {
		return payload
	}
	return string(payload)
}

// SelectQuery is never called by a publisher.
func (schemaAdapter) SelectQuery(string, string, watermillsql.OffsetsAdapter) watermillsql.Query {
	return watermillsql.Query{}
}

// UnmarshalMessage is never called by a publisher.
func (schemaAdapter) UnmarshalMessage(watermillsql.Scanner) (watermillsql.Row, error) {
	return watermillsql.Row{}, errPublishOnly
}

// SchemaInitializingQueries gives none: Migrate makes the tables.
func (schemaAdapter) SchemaInitializingQueries(string) []watermillsql.Query { return nil }

// SubscribeIsolationLevel is never called by a publisher.
func (schemaAdapter) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelDefault }

var _ watermillsql.SchemaAdapter = schemaAdapter{}
