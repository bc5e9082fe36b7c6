package sqlite

import (
	"database/sql"
	"errors"
	"fmt"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/store"
)

const (
	maxParameters    = 32766 // of one statement, SQLITE_MAX_VARIABLE_NUMBER
	insertParameters = 8     // of one row
	maxAppend        = maxParameters / insertParameters
)

var errPublishOnly = errors.New("the outbox's schema adapter is for publishing only: a forwarder reads the log")

// MaxAppend is how many notifications one INSERT can carry.
func (*Store) MaxAppend() int { return maxAppend }

// SchemaAdapter lets Watermill's SQL publisher append to the log. It is for
// publishing only: the log is read by the store, and a subscriber that is given
// this adapter fails on the first row.
func (s *Store) SchemaAdapter() watermillsql.SchemaAdapter {
	return schemaAdapter{table: s.prefix}
}

type schemaAdapter struct{ table string }

var _ watermillsql.SchemaAdapter = schemaAdapter{}

// InsertQuery appends all messages with one statement, up to MaxAppend. The
// topic is not used: each message carries its type. See store.NewMessage.
func (a schemaAdapter) InsertQuery(_ string, messages message.Messages) (watermillsql.Query, error) {
	if len(messages) == 0 || len(messages) > maxAppend {
		return watermillsql.Query{}, fmt.Errorf("one statement appends between 1 and %d notifications, not %d", maxAppend, len(messages))
	}
	var values tuples
	for _, m := range messages {
		e, err := store.EnvelopeOf(m)
		if err != nil {
			return watermillsql.Query{}, err
		}
		metadata, err := store.EncodeMetadata(e.Metadata)
		if err != nil {
			return watermillsql.Query{}, fmt.Errorf("message %s: metadata: %w", e.ID, err)
		}
		values.add(e.ID, e.Type, e.Version, e.Key, formatTime(e.OccurredOn), nullTime(e.DeliverAt), metadata, notNil(e.Payload))
	}
	return watermillsql.Query{
		Query: `INSERT INTO ` + a.table + ` (id, type, version, key, occurred_on, deliver_at, metadata, payload) VALUES ` + values.String(),
		Args:  values.args,
	}, nil
}

// SelectQuery gives a row to refuse, so that a subscriber does not wait in
// silence.
func (a schemaAdapter) SelectQuery(string, string, watermillsql.OffsetsAdapter) watermillsql.Query {
	return watermillsql.Query{Query: `SELECT "offset" FROM ` + a.table + ` LIMIT 1`}
}

// UnmarshalMessage refuses.
func (schemaAdapter) UnmarshalMessage(watermillsql.Scanner) (watermillsql.Row, error) {
	return watermillsql.Row{}, errPublishOnly
}

// SchemaInitializingQueries gives none: Migrate makes the tables.
func (schemaAdapter) SchemaInitializingQueries(string) []watermillsql.Query { return nil }

// SubscribeIsolationLevel is never used for reading the log.
func (schemaAdapter) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelDefault }
