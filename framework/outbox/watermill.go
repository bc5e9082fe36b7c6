package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
)

// topic is the name of the log for Watermill. The SQL text has the table's name.
const topic = "outbox"

// insert appends envelopes through Watermill's SQL publisher, in one INSERT or, if they exceed
// the limits of a statement, in several. It returns the error of the database or of this
// package, without Watermill's text around it.
func (p *Publisher) insert(ctx context.Context, tx Tx, envelopes []notification.Envelope) error {
	adapter := &schemaAdapter{log: p.log, sql: &p.insertSQL}
	executor := &executor{publisher: p, ctx: ctx, tx: tx}
	publisher, err := watermillsql.NewPublisher(executor, watermillsql.PublisherConfig{SchemaAdapter: adapter}, nil)
	if err != nil {
		return err
	}
	limits := p.log.Limits()
	for adapter.envelopes = range store.Chunks(envelopes, limits.Parameters/columns, limits.Bytes, store.Size) {
		executor.one = len(adapter.envelopes) == 1
		if err := publisher.Publish(topic, messages(adapter.envelopes)...); err != nil {
			return p.failed(ctx, tx, cmp.Or(adapter.err, executor.err, err))
		}
	}
	return nil
}

// failed explains the error of an INSERT.
func (p *Publisher) failed(ctx context.Context, tx Tx, err error) error {
	if d, can := p.log.(store.Diagnoser); can {
		err = d.Diagnose(ctx, tx, err)
	}
	return fmt.Errorf("append to the outbox: %w", explain(err))
}

// messages returns what Watermill's publisher passes on to the schema adapter, which has the
// envelopes themselves. The messages lack the channels of message.NewMessage: nothing waits
// for an acknowledgement.
func messages(envelopes []notification.Envelope) []*message.Message {
	values := make([]message.Message, len(envelopes))
	pointers := make([]*message.Message, len(envelopes))
	for i := range envelopes {
		values[i].UUID, values[i].Payload = envelopes[i].ID, envelopes[i].Payload
		pointers[i] = &values[i]
	}
	return pointers
}

// schemaAdapter gives Watermill's SQL publisher the INSERT for the envelopes of one call. It
// only publishes: the forwarder reads the log without Watermill's subscriber.
type schemaAdapter struct {
	log       Log
	sql       *insertSQL
	envelopes []notification.Envelope // of the messages that are published next
	err       error                   // why InsertQuery failed
}

var _ watermillsql.SchemaAdapter = (*schemaAdapter)(nil)

// InsertQuery appends the envelopes with one statement. It ignores topic and messages: an
// envelope has more columns than a message.
func (a *schemaAdapter) InsertQuery(string, message.Messages) (watermillsql.Query, error) {
	args := make([]any, 0, columns*len(a.envelopes))
	for i := range a.envelopes {
		e := &a.envelopes[i]
		metadata, err := store.EncodeMetadata(e.Metadata)
		if err != nil {
			a.err = fmt.Errorf("metadata of %s: %w", e.ID, err)
			return watermillsql.Query{}, a.err
		}
		args = append(args, e.ID, e.Type, e.Version, e.Key, a.log.BindTime(e.OccurredOn), a.log.BindTime(e.DeliverAt), metadata, a.log.BindPayload(e.Payload))
	}
	if l, can := a.log.(plentiful); can && len(a.envelopes) >= leastMany {
		query, args := l.InsertMany(args)
		return watermillsql.Query{Query: query, Args: args}, nil
	}
	return watermillsql.Query{Query: a.sql.rows(len(a.envelopes)), Args: args}, nil
}

// SelectQuery is not used: the publisher never calls it.
func (*schemaAdapter) SelectQuery(string, string, watermillsql.OffsetsAdapter) watermillsql.Query {
	return watermillsql.Query{}
}

// UnmarshalMessage is not used: the publisher never calls it.
func (*schemaAdapter) UnmarshalMessage(watermillsql.Scanner) (watermillsql.Row, error) {
	return watermillsql.Row{}, errInsertOnly
}

// SchemaInitializingQueries returns none: Migrate creates the tables.
func (*schemaAdapter) SchemaInitializingQueries(string) []watermillsql.Query { return nil }

// SubscribeIsolationLevel is not used: the publisher never calls it.
func (*schemaAdapter) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelDefault }

// executor executes the statements of Watermill's publisher in the caller's transaction and
// with the caller's context, whatever context the publisher passes.
type executor struct {
	publisher *Publisher
	ctx       context.Context
	tx        Tx
	one       bool  // whether the next INSERT is of one row
	err       error // of the last INSERT
}

var _ watermillsql.ContextExecutor = (*executor)(nil)

func (e *executor) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	return e.Exec(query, args...)
}

func (e *executor) Exec(query string, args ...any) (result sql.Result, err error) {
	if tx, wrapped := e.tx.(pgxTx); wrapped {
		if holding := tx.holding(); holding != nil {
			e.err = holding.Hold(e.ctx, func(err error) error { return e.publisher.failed(e.ctx, e.tx, err) }, query, args...)
			return nil, e.err // Watermill's publisher does not use the result
		}
	}
	if tx := e.publisher.preparedIn(e.tx); tx != nil && e.one {
		one := tx.StmtContext(e.ctx, e.publisher.one)
		defer func() { _ = one.Close() }() // the connection keeps it
		result, e.err = one.ExecContext(e.ctx, args...)
	} else {
		result, e.err = e.tx.ExecContext(e.ctx, query, args...)
	}
	return result, e.err
}

// The publisher calls none of the query methods.

func (*executor) QueryContext(context.Context, string, ...any) (*sql.Rows, error) {
	return nil, errInsertOnly
}

func (*executor) Query(string, ...any) (*sql.Rows, error) { return nil, errInsertOnly }

func (*executor) QueryRowContext(context.Context, string, ...any) *sql.Row { return nil }

func (*executor) QueryRow(string, ...any) *sql.Row { return nil }
