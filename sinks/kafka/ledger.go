package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// Exactly once: each lane has a client with its own transactional id, which fences the clients
// that had the lane before. The notes of a lane are in its own partition of the positions topic:
// see positions.go.

var (
	_ sinks.Transactor = (*Sink)(nil)
	_ sinks.Ledger     = (*ledger)(nil)
)

const (
	minTransactionTimeout = 10 * time.Second
	maxTransactionTimeout = 15 * time.Minute // the brokers' default of transaction.max.timeout.ms
)

// transactionTimeout returns the time after which the brokers abort a transaction whose client
// is gone and was not replaced. It is longer than a round's last delivery and its commit take.
func (c *Config) transactionTimeout() time.Duration {
	timeouts := time.Duration(3)
	if c.Large.Enabled() {
		timeouts++ // a round can wait for the store after it has begun
	}
	return min(max(minTransactionTimeout, timeouts*c.Timeout), maxTransactionTimeout)
}

// Transacts reports whether exactly_once is on.
func (s *Sink) Transacts() bool { return s.config.ExactlyOnce }

// OpenLedger fences the clients that had the lane, and reads its newest note. It creates the
// positions topic if that is missing. Its errors are unavailable. They wrap
// ErrTransactionVersion, ErrPositions or ErrOtherCluster if a person must act.
func (s *Sink) OpenLedger(ctx context.Context, lane sinks.LedgerLane) (sinks.Ledger, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*s.config.Timeout)
	defer cancel()
	l := &ledger{sink: s, partition: int32(lane.Number), id: fmt.Sprintf("%s/%s/%d", s.config.Positions, s.name, lane.Number)}
	l.client = s.transactional(l.id)
	newest, err := l.open(ctx, lane)
	if err != nil {
		l.client.Close()
		return nil, nil, s.ledgerError(err)
	}
	return l, newest, nil
}

// ledgerError returns the unavailable error of a ledger that cannot be opened because of err.
func (s *Sink) ledgerError(err error) error {
	for _, setup := range []error{ErrTransactionVersion, ErrPositions, ErrOtherCluster} {
		if errors.Is(err, setup) {
			return sinks.Unavailable(err)
		}
	}
	return notConnected("", s.explain(&connectError{err}))
}

// transactional returns a client with a transactional id.
func (s *Sink) transactional(id string) *kgo.Client {
	return s.franz.transactional(
		kgo.TransactionalID(id),
		kgo.TransactionTimeout(s.config.transactionTimeout()),
		kgo.RecordPartitioner(ledgerPartitioner{s.config.Positions, kgo.StickyKeyPartitioner(nil)}),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if topic == s.config.Positions {
				return maxNoteBytes - minBatchBytes
			}
			return int32(max(s.config.MaxMessageBytes, minBatchBytes))
		}),
	)
}

// ledgerPartitioner puts notes into the partition of their lane, and other records into that
// of their key.
type ledgerPartitioner struct {
	positions string
	others    kgo.Partitioner
}

func (p ledgerPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	if topic == p.positions {
		return kgo.ManualPartitioner().ForTopic(topic)
	}
	return p.others.ForTopic(topic)
}

// ledger is the ledger of one lane.
type ledger struct {
	sink      *Sink
	id        string // the transactional id
	partition int32  // of the positions topic
	client    *kgo.Client
	end       sync.Once // closes the client

	mu     sync.Mutex
	begun  bool  // a transaction is open
	broken error // why the transaction cannot be committed
	closed bool
}

func (l *ledger) open(ctx context.Context, lane sinks.LedgerLane) (newest []byte, err error) {
	admin := kadm.NewClient(l.client)
	if err := l.sink.checkTransactions(ctx, l.client); err != nil {
		return nil, err
	}
	if err := l.sink.checkPositions(ctx, admin, lane, true); err != nil {
		return nil, err
	}
	if err := l.fence(ctx); err != nil {
		return nil, err
	}
	end, err := l.mark(ctx)
	if err != nil {
		return nil, err
	}
	return l.sink.newest(ctx, admin, l.partition, end)
}

// fence gets a producer id, which fences the client that had the transactional id before. On
// the first transaction, a cluster creates a topic; until then it has no coordinator.
func (l *ledger) fence(ctx context.Context) error {
	for {
		_, _, err := l.client.ProducerID(ctx)
		if !errors.Is(err, kerr.CoordinatorNotAvailable) && !errors.Is(err, kerr.CoordinatorLoadInProgress) && !errors.Is(err, kerr.NotCoordinator) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(l.sink.config.step() / 10):
		}
	}
}

// mark commits a record after all notes of the lane, and returns its offset.
func (l *ledger) mark(ctx context.Context) (offset int64, err error) {
	if err := l.client.BeginTransaction(); err != nil {
		return 0, err
	}
	mark := &kgo.Record{Topic: l.sink.config.Positions, Partition: l.partition, Key: []byte(l.sink.markKey()), Value: []byte(l.id)}
	if err := l.client.ProduceSync(ctx, mark).FirstErr(); err != nil {
		return 0, err
	}
	return mark.Offset, l.client.EndTransaction(ctx, kgo.TryCommit)
}

// Err returns why the transaction can no longer be committed; nil if it can.
func (l *ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}

// breakOff records why the transaction cannot be committed. It returns false if there already
// is a reason, which stays.
func (l *ledger) breakOff(why error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.broken == nil
	if first {
		l.broken = why
	}
	return first
}

// begin begins a transaction, unless one is open.
func (l *ledger) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("%w: %w", sinks.ErrAborted, ErrClosed)
	case l.broken != nil:
		return fmt.Errorf("%w: %w", sinks.ErrAborted, l.broken)
	case l.begun:
		return nil
	}
	if err := l.client.BeginTransaction(); err != nil {
		l.broken = err
		return aborted("", err)
	}
	l.begun = true
	return nil
}

// DeliverBatch writes one record for each delivery into the open transaction. If the client
// refuses a record, for its size or its topic, the transaction continues. If a broker refuses
// one, the transaction is lost.
func (l *ledger) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	s := l.sink
	publications, list := s.publications(ctx, batch) // which may wait for a schema registry or a store
	if err := l.begin(); err != nil {
		return sinks.Failed(batch, err)
	}
	records := make([]*kgo.Record, 0, len(list))
	for _, p := range list {
		if p.canGo() {
			records = append(records, &p.record)
		}
	}
	if len(records) > 0 {
		l.produce(ctx, records)
	}
	results := make([]sinks.Result, len(batch))
	for i := range publications {
		p := &publications[i]
		if results[i].Err = p.err; p.err == nil {
			results[i].Receipt = p.receipt()
		}
	}
	return results
}

// limit returns a context for a call of the client, which ends after the configured timeout or
// grace after ctx. Call done when the client has returned. The client does not give up records
// that may have been written, so if it has not returned within another grace, it is closed,
// and the transaction is lost.
func (l *ledger) limit(ctx context.Context) (sending context.Context, done func()) {
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.sink.config.Timeout)
	stopGrace := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	returned := make(chan struct{})
	context.AfterFunc(sending, func() {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-returned:
		case <-late.C:
			l.breakOff(ErrOverdue)
			l.closeClient()
		}
	})
	return sending, func() {
		stopGrace()
		close(returned)
		cancel()
	}
}

func (l *ledger) closeClient() { l.end.Do(l.client.Close) }

// produce writes records and sets the err of their publications.
func (l *ledger) produce(ctx context.Context, records []*kgo.Record) {
	sending, done := l.limit(ctx)
	defer done()
	var refused []*publication
	for _, result := range l.client.ProduceSync(sending, records...) {
		p := result.Record.Context.(*publication)
		if p.err = result.Err; p.err == nil {
			continue
		}
		if p.rejectedWithBatch() {
			refused = append(refused, p)
		}
		p.err = l.failed(p, p.err)
	}
	if len(refused) > 0 {
		l.findRefused(sending, refused)
	}
}

// failed returns the classified error of a publication that was not written because of err.
func (l *ledger) failed(p *publication, err error) error {
	first := l.breakOff(err)
	f, _ := faultOf(err)
	switch {
	case isFenced(err), errors.Is(err, kgo.ErrAborting), isTransactionError(err):
		return aborted(p.topic, err)
	case isProtocol(err) && f != clusterFault:
		return classify(l.sink.origin(), p.topic, err)
	case !first && !errors.Is(l.Err(), ErrOverdue):
		return aborted(p.topic, err) // the error of another record has broken the transaction
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		err = ErrOverdue
	}
	return sinks.Unavailable(describe(p.topic, l.sink.explain(err)))
}

func aborted(topic string, err error) error {
	if errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.UnknownProducerID) {
		return fmt.Errorf("%w: %w: %w", sinks.ErrAborted, sinks.ErrExpired, describe(topic, err)) // see transactional.id.expiration.ms
	}
	return fmt.Errorf("%w: %w", sinks.ErrAborted, describe(topic, err))
}

// isFenced reports whether another client has taken over the transactional id.
func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.TransactionCoordinatorFenced)
}

// isTransactionError reports whether err is about the state of one transaction, so that the
// next transaction may succeed.
func isTransactionError(err error) bool {
	return slices.ContainsFunc([]error{
		kerr.InvalidTxnState, kerr.ConcurrentTransactions, kerr.OperationNotAttempted, kerr.TransactionAbortable,
		kerr.UnknownProducerID, kerr.InvalidProducerIDMapping, kerr.OutOfOrderSequenceNumber,
	}, func(target error) bool { return errors.Is(err, target) })
}

// findRefused finds out which of the records that were refused together are refused alone. It
// tries them in transactions of another client and aborts each of them. The other records get
// the error ErrAborted.
func (l *ledger) findRefused(ctx context.Context, refused []*publication) {
	s := l.sink
	s.warnRejected.Do(func() {
		p := refused[0]
		s.logger.Warn("kafka rejected a batch and with it a transaction; its records are tried in parts, which is slow; max_message_bytes may be above the topic's max.message.bytes",
			"topic", p.topic, "type", p.envelope.Type, "id", p.envelope.ID, "error", p.err)
	})
	client := s.transactional(l.id + "/tried") // a different id, which does not fence the lane's client
	defer client.Close()
	var try func(part []*publication)
	try = func(part []*publication) {
		for _, p := range part {
			p.record = kgo.Record{Topic: p.record.Topic, Key: p.record.Key, Value: p.record.Value, Timestamp: p.record.Timestamp, Headers: p.record.Headers, Context: p}
		}
		rejected := isRejected(ctx, client, part)
		switch {
		case rejected && len(part) == 1: // it keeps its error
		case rejected:
			try(part[:len(part)/2])
			try(part[len(part)/2:])
		default:
			for _, p := range part {
				p.err = aborted(p.topic, kerr.TransactionAbortable)
			}
		}
	}
	try(refused)
}

// isRejected reports whether a broker rejects a batch of these records because of one of them.
// It writes them in a transaction, which it aborts.
func isRejected(ctx context.Context, client *kgo.Client, part []*publication) (rejected bool) {
	if ctx.Err() != nil || client.BeginTransaction() != nil {
		return false
	}
	records := make([]*kgo.Record, len(part))
	for i, p := range part {
		records[i] = &p.record
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		rejected = rejected || (&publication{err: result.Err}).rejectedWithBatch()
	}
	_ = client.EndTransaction(ctx, kgo.TryAbort) // if it fails, so does the next BeginTransaction
	return rejected
}

// Commit writes the note into the transaction and commits it.
func (l *ledger) Commit(ctx context.Context, note []byte) error {
	if err := l.begin(); err != nil {
		return err
	}
	ctx, done := l.limit(ctx)
	defer done()
	topic := l.sink.config.Positions
	err := l.client.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: l.partition, Key: []byte(l.sink.noteKey()), Value: note}).FirstErr()
	if err == nil {
		err = l.client.EndTransaction(ctx, kgo.TryCommit)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun = err != nil
	if err == nil {
		return nil
	}
	l.broken = err
	if isFenced(err) || isTransactionError(err) {
		return aborted(topic, err)
	}
	if errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = ErrOverdue
	}
	return sinks.Unavailable(describe(topic, l.sink.explain(err)))
}

// Close aborts the open transaction and closes the client.
func (l *ledger) Close(ctx context.Context) (err error) {
	l.mu.Lock()
	open := l.begun && !l.closed
	l.closed = true
	l.mu.Unlock()
	if open {
		if err = l.client.AbortBufferedRecords(ctx); err == nil {
			err = l.client.EndTransaction(ctx, kgo.TryAbort)
		}
		if isFenced(err) {
			err = nil // the client that fenced this one has aborted the transaction
		}
	}
	l.closeClient()
	return err
}
