package publisher

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"

	"github.com/waybill-go/waybill/sinks"
)

// lost are errors of a connection that cannot be made, or has ended.
var lost = []error{
	ErrClosed,
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
	context.DeadlineExceeded, // one of the library's own: the sink's has not passed
}

// failed gives an error of the publisher its class: the one that it was made with, or
// that the application gives it, else unavailable where the connection is at fault. All
// others are transient. So is a context that was cancelled inside the publisher: ours
// was not, and without an attempt spent it would be tried forever.
func (s *Sink) failed(topic string, err error) error {
	if !hasClass(err) && s.classify != nil {
		if classed := s.classify(err); hasClass(classed) {
			err = classed
		}
	}
	said := fmt.Errorf("publish to %s: %w", topic, err)
	switch {
	case hasClass(err):
		return said
	case isOfConnection(err):
		return sinks.Unavailable(said)
	}
	return sinks.Transient(said)
}

func hasClass(err error) bool {
	var classed *sinks.Error
	return errors.As(err, &classed)
}

func isOfConnection(err error) bool {
	var (
		operation   *net.OpError
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
		other       net.Error
	)
	return slices.ContainsFunc(lost, func(one error) bool { return errors.Is(err, one) }) ||
		errors.As(err, &operation) || errors.As(err, &name) ||
		errors.As(err, &certificate) || errors.As(err, &record) ||
		errors.As(err, &other) && other.Timeout()
}
