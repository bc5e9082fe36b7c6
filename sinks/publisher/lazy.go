package publisher

import (
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/waybill-go/waybill/sinks"
)

// ErrClosed is what a [Lazy] publisher returns for messages after its Close.
var ErrClosed = errors.New("publisher is closed")

// Lazy returns a publisher that connect makes at the first message. It is for
// libraries that dial when they make theirs, as those of AMQP and NATS do: with it
// an application starts while its broker is down, and the sink waits for the broker
// as it does at any other time.
//
// An error of connect is unavailable, unless it has a class: no attempt is spent,
// and connect is called again at the next message, one call at a time. Messages that
// come meanwhile wait for it; it must bound its own time, and leave nothing open
// when it fails. What it made once is kept: reconnecting after a connection is
// lost is up to the library, and what its errors mean then to [Config.Classify].
//
// Close closes what connect made. Its Publish may be called in parallel as far as
// that of connect's publisher may.
func Lazy(connect func() (message.Publisher, error)) message.Publisher {
	return &lazy{connect: connect}
}

type lazy struct {
	connect func() (message.Publisher, error)

	mu     sync.Mutex
	made   message.Publisher
	closed bool
}

func (l *lazy) Publish(topic string, messages ...*message.Message) error {
	p, err := l.publisher()
	if err != nil {
		return err
	}
	return p.Publish(topic, messages...)
}

func (l *lazy) publisher() (message.Publisher, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if l.made != nil {
		return l.made, nil
	}
	p, err := l.connect()
	if err != nil {
		return nil, orUnavailable(err)
	}
	l.made = p
	return p, nil
}

func orUnavailable(err error) error {
	if hasClass(err) {
		return err
	}
	return sinks.Unavailable(err)
}

func (l *lazy) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.made == nil {
		l.closed = true
		return nil
	}
	l.closed = true
	return l.made.Close()
}
