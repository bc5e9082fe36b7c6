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

// Exactly once: each lane has a client of its own with a transactional id, which fences the clients that
// had the lane before, and a partition of the positions topic for its notes. See positions.go for that
// topic.

var (
	_ sinks.Transactor = (*Sink)(nil)
	_ sinks.Ledger     = (*ledger)(nil)
)

const (
	leastTransactionTimeout = 10 * time.Second
	maxTransactionTimeout   = 15 * time.Minute // what brokers allow, unless transaction.max.timeout.ms says otherwise
)

// transactionTimeout is after what time the brokers abort a transaction whose client is gone, if no other
// has come: longer than a round's last delivery and its commit take.
func (c *Config) transactionTimeout() time.Duration {
	return min(max(leastTransactionTimeout, 3*c.Timeout), maxTransactionTimeout)
}

// Transacts reports whether exactly_once is on.
func (s *Sink) Transacts() bool { return s.config.ExactlyOnce }

// OpenLedger fences the clients that had the lane, and reads its newest note. It creates the positions topic
// where that is missing. Its errors are unavailable, and wrap ErrTransactionVersion, ErrPositions or
// ErrOtherCluster where a person has to act.
func (s *Sink) OpenLedger(ctx context.Context, lane sinks.LedgerLane) (sinks.Ledger, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*s.config.Timeout)
	defer cancel()
	l := &ledger{sink: s, partition: int32(lane.Number), id: fmt.Sprintf("%s/%s/%d", s.config.Positions, s.name, lane.Number)}
	l.client = s.transactional(l.id)
	newest, err := l.open(ctx, lane)
	if err != nil {
		l.client.Close()
		return nil, nil, s.unfit(err)
	}
	return l, newest, nil
}

// unfit is the error of a ledger that could not be opened.
func (s *Sink) unfit(err error) error {
	for _, ours := range []error{ErrTransactionVersion, ErrPositions, ErrOtherCluster} {
		if errors.Is(err, ours) {
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
				return largestNote - leastBatchBytes
			}
			return int32(max(s.config.MaxMessageBytes, leastBatchBytes))
		}),
	)
}

// ledgerPartitioner puts notes into the partition of their lane, and the others where they belong.
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

// ledger is one lane's.
type ledger struct {
	sink      *Sink
	id        string // the transactional id
	partition int32  // of the positions topic
	client    *kgo.Client
	end       sync.Once // closes the client

	mu     sync.Mutex
	begun  bool
	lost   error // why the transaction cannot be committed
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

// fence gets a producer id, which cuts off whoever had the transactional id before. A cluster's first
// transaction has it make a topic, until when it has no coordinator.
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

// mark commits a record behind all notes of the lane, and returns its offset.
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

// Err says why the transaction cannot be committed any more.
func (l *ledger) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// lose notes why the transaction cannot be committed, and returns false if there was a reason before.
func (l *ledger) lose(why error) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first = l.lost == nil
	if first {
		l.lost = why
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
	case l.lost != nil:
		return fmt.Errorf("%w: %w", sinks.ErrAborted, l.lost)
	case l.begun:
		return nil
	}
	if err := l.client.BeginTransaction(); err != nil {
		l.lost = err
		return fmt.Errorf("%w: %w", sinks.ErrAborted, err)
	}
	l.begun = true
	return nil
}

// DeliverBatch writes one record for each delivery into the open transaction. A record that is refused by
// this client, for its size or its topic, costs nothing; one that is refused by a broker costs the transaction.
func (l *ledger) DeliverBatch(ctx context.Context, batch []*notification.Delivery) []sinks.Result {
	if err := l.begin(); err != nil {
		return sinks.Failed(batch, err)
	}
	s := l.sink
	publications, list := s.publications(batch)
	records := make([]*kgo.Record, 0, len(list))
	for _, p := range list {
		if p.goes() {
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

// limit bounds what the client may take: the configured timeout, and a moment more than ctx. The client does not
// give up records whose fate is unknown; so it is closed a moment later, and the transaction lost. The
// caller calls back when the client is.
func (l *ledger) limit(ctx context.Context) (sending context.Context, back func()) {
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.sink.config.Timeout)
	noGrace := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancel) })
	isBack := make(chan struct{})
	context.AfterFunc(sending, func() {
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case <-isBack:
		case <-late.C:
			l.lose(ErrOverdue)
			l.closeClient()
		}
	})
	return sending, func() {
		noGrace()
		close(isBack)
		cancel()
	}
}

func (l *ledger) closeClient() { l.end.Do(l.client.Close) }

// produce writes records, and says of each publication what came of it.
func (l *ledger) produce(ctx context.Context, records []*kgo.Record) {
	sending, back := l.limit(ctx)
	defer back()
	var refused []*publication
	for _, result := range l.client.ProduceSync(sending, records...) {
		p := result.Record.Context.(*publication)
		if p.err = result.Err; p.err == nil {
			continue
		}
		if p.blamesBatch() {
			refused = append(refused, p)
		}
		p.err = l.failed(p, p.err)
	}
	if len(refused) > 0 {
		l.blame(sending, refused)
	}
}

// failed is what came of a publication that was not written.
func (l *ledger) failed(p *publication, err error) error {
	first := l.lose(err)
	f, _ := faultOf(err)
	switch said := isProtocol(err); {
	case isFenced(err), errors.Is(err, kgo.ErrAborting), isOfTransaction(err):
		return aborted(p.topic, err)
	case said && f != ofCluster:
		return classify(l.sink.origin(), p.topic, err)
	case !first && !errors.Is(l.Err(), ErrOverdue):
		return aborted(p.topic, err) // it is not the cluster, but what another one met
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		err = ErrOverdue
	}
	return sinks.Unavailable(describe(p.topic, l.sink.explain(err)))
}

func aborted(topic string, err error) error {
	return fmt.Errorf("%w: %w", sinks.ErrAborted, describe(topic, err))
}

// isFenced says whether another client has the transactional id.
func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.TransactionCoordinatorFenced)
}

// isOfTransaction says whether an error is about a transaction, which the next one does not meet.
func isOfTransaction(err error) bool {
	return slices.ContainsFunc([]error{
		kerr.InvalidTxnState, kerr.ConcurrentTransactions, kerr.OperationNotAttempted, kerr.TransactionAbortable,
		kerr.UnknownProducerID, kerr.InvalidProducerIDMapping, kerr.OutOfOrderSequenceNumber,
	}, func(of error) bool { return errors.Is(err, of) })
}

// blame finds out which of records that were refused together are refused alone. They are tried in
// transactions of another client, each of which is aborted.
func (l *ledger) blame(ctx context.Context, refused []*publication) {
	s := l.sink
	s.warnRejected.Do(func() {
		p := refused[0]
		s.logger.Warn("kafka rejected a batch, and a transaction for it: its records are tried in parts, which is slow; max_message_bytes may be above the topic's max.message.bytes",
			"topic", p.topic, "type", p.envelope.Type, "id", p.envelope.ID, "error", p.err)
	})
	client := s.transactional(l.id + "/tried")
	defer client.Close()
	var try func(part []*publication)
	try = func(part []*publication) {
		for _, p := range part {
			p.record = kgo.Record{Topic: p.record.Topic, Key: p.record.Key, Value: p.record.Value, Timestamp: p.record.Timestamp, Headers: p.record.Headers, Context: p}
		}
		blamed := tried(ctx, client, part)
		switch {
		case blamed && len(part) == 1: // the error says it
		case blamed:
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

// tried says whether records are refused for what one of them is, in a transaction that is aborted.
func tried(ctx context.Context, client *kgo.Client, part []*publication) (blamed bool) {
	if ctx.Err() != nil || client.BeginTransaction() != nil {
		return false
	}
	records := make([]*kgo.Record, len(part))
	for i, p := range part {
		records[i] = &p.record
	}
	for _, result := range client.ProduceSync(ctx, records...) {
		blamed = blamed || (&publication{err: result.Err}).blamesBatch()
	}
	_ = client.EndTransaction(ctx, kgo.TryAbort) // or the next BeginTransaction fails
	return blamed
}

// Commit commits what is in the transaction, with the note.
func (l *ledger) Commit(ctx context.Context, note []byte) error {
	if err := l.begin(); err != nil {
		return err
	}
	ctx, back := l.limit(ctx)
	defer back()
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
	l.lost = err
	if isFenced(err) || isOfTransaction(err) {
		return aborted(topic, err)
	}
	if errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = ErrOverdue
	}
	return sinks.Unavailable(describe(topic, l.sink.explain(err)))
}

// Close aborts what is not committed, and ends the client.
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
			err = nil // it is aborted
		}
	}
	l.closeClient()
	return err
}
