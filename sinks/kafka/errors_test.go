package kafka

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waybill-go/waybill/sinks"
	"github.com/waybill-go/waybill/sinks/sinktest"
)

func TestEachErrorHasItsClass(t *testing.T) {
	t.Parallel()
	const (
		permanent, invalid, transient, unavailable = sinks.ClassPermanent, sinks.ClassInvalid, sinks.ClassTransient, sinks.ClassUnavailable
	)
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	// answers_test.go has the errors of brokers.
	for _, c := range []struct {
		err error
		// configured is the class for a topic from the configuration, fromData for a topic from
		// data.
		configured, fromData sinks.Class
	}{
		{refused, unavailable, unavailable},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, unavailable, unavailable},
		{io.EOF, unavailable, unavailable},
		{io.ErrUnexpectedEOF, unavailable, unavailable},
		{net.ErrClosed, unavailable, unavailable},
		{ErrClosed, unavailable, unavailable},

		{kerr.UnknownServerError, transient, transient},

		{errors.New("something else"), unavailable, unavailable},
		{kgo.ErrRecordRetries, unavailable, unavailable},
		{ErrTooLarge, invalid, invalid},
		{ErrTimestamp, invalid, invalid},
		{kerr.MessageTooLarge, permanent, permanent},
		{kerr.UnknownTopicID, unavailable, transient},
	} {
		t.Run(fmt.Sprintf("%T %v", c.err, c.err), func(t *testing.T) {
			for origin, want := range map[origin]sinks.Class{configured: c.configured, fromData: c.fromData} {
				err := classify(origin, "orders", fmt.Errorf("cannot produce: %w", c.err))
				assert.Equal(t, want, sinktest.Class(err), "%v", origin)
				assert.ErrorIs(t, err, c.err)
				assert.ErrorContains(t, err, "topic orders")
			}
		})
	}
}

// Any other error of a broker is not permanent.
func TestOnlyErrorsAboutTheRecordArePermanent(t *testing.T) {
	t.Parallel()
	permanent := map[origin][]error{}
	for code := int16(-1); code < 200; code++ {
		err := kerr.ErrorForCode(code)
		for _, origin := range []origin{configured, fromData} {
			if class, _ := sinks.Classify(classify(origin, "orders", err)); class == sinks.ClassPermanent {
				permanent[origin] = append(permanent[origin], err)
			}
		}
	}
	record := []error{kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidTimestamp, kerr.InvalidRecord}
	assert.ElementsMatch(t, record, permanent[configured])
	assert.ElementsMatch(t, append(record, kerr.InvalidTopicException), permanent[fromData])
}

func TestErrorsWhileConnectingAreUnavailable(t *testing.T) {
	t.Parallel()
	for _, met := range []error{errors.New("something else"), kerr.UnknownTopicOrPartition, kerr.InvalidTopicException} {
		err := notConnected("orders", met)
		assert.Equal(t, sinks.ClassUnavailable, sinktest.Class(err))
		assert.ErrorIs(t, err, ErrNotConnected)
		assert.ErrorIs(t, err, met)
	}
}

func TestTheReceiptOfADuplicateHasNoOffset(t *testing.T) {
	t.Parallel()
	p := &publication{topic: "orders", record: kgo.Record{Partition: 3, Offset: noOffset}}
	assert.EqualValues(t, "kafka orders/3", p.receipt())
	p.record.Offset = 1042
	assert.EqualValues(t, "kafka orders/3@1042", p.receipt())
}
