// Telegraph is waybill with the sink kind telegraph.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program"
	"github.com/waybill-go/waybill/sinks"
)

func main() { program.Main(program.Name("telegraph"), program.Kinds(kind())) }

type config struct {
	Address string `yaml:"address" doc:"host:port of the office. Required"`
}

func (c *config) Validate() error {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return fmt.Errorf("address: %q is not host:port", c.Address)
	}
	return nil
}

func kind() sinks.Kind {
	return sinks.NewKind("telegraph", "a telegram for each notification",
		func(_ sinks.Instance, c config) (sinks.Sink, error) { return &telegraph{c}, nil })
}

type telegraph struct{ config config }

func (s *telegraph) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if bytes.ContainsAny(d.Payload, "\r\n") {
		return "", sinks.Invalid(errors.New("a telegram has one line"))
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", s.config.Address)
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", sinks.Unavailable(err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	answer := ""
	if _, err = fmt.Fprintf(conn, "%s %s\n", d.ID, d.Payload); err == nil {
		answer, err = bufio.NewReader(conn).ReadString('\n')
	}
	switch answer = strings.TrimSpace(answer); {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case err != nil:
		return "", err
	case answer == "OK":
		return "OK", nil
	case answer == "NEVER":
		return "", sinks.Permanent(errors.New("the office does not send such a text"))
	}
	return "", fmt.Errorf("the office answers %q", answer)
}
