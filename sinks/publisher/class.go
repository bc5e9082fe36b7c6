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

// lost are errors of a connection that cannot be made or has ended.
var lost = []error{
	ErrClosed,
	io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed,
	syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPIPE,
	syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ENETDOWN,
	context.DeadlineExceeded, // of a timeout in the library: the delivery's deadline has not passed
}

// failed returns an error of the publisher with its class: the one that it already has, or the
// one from Config.Classify, or unavailable if it is about the connection, or transient. A
// context.Canceled is transient, too, because the delivery's context was not cancelled. If it
// used up no attempt, it would be retried forever.
func (s *Sink) failed(topic string, err error) error {
	if !hasClass(err) && s.classify != nil {
		if classed := s.classify(err); hasClass(classed) {
			err = classed
		}
	}
	described := fmt.Errorf("publish to %s: %w", topic, err)
	switch {
	case hasClass(err):
		return described
	case isConnectionError(err):
		return sinks.Unavailable(described)
	}
	return sinks.Transient(described)
}

func hasClass(err error) bool {
	var classed *sinks.Error
	return errors.As(err, &classed)
}

func isConnectionError(err error) bool {
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
