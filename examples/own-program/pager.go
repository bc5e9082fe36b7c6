package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/sinks"
)

// pagerConfig is the part of the configuration below "with:".
type pagerConfig struct {
	Address   string `yaml:"address" doc:"host:port of the desk that sends the pages. Required"`
	MaxLength int    `yaml:"max_length" doc:"longest page, in bytes. Default 500"`
}

// SetDefaults runs before the user's values are decoded.
func (c *pagerConfig) SetDefaults() { c.MaxLength = 500 }

// Validate reports all mistakes at once, each with the key that the user wrote.
func (c *pagerConfig) Validate() error {
	var problems []error
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		problems = append(problems, fmt.Errorf("address: %q is not host:port", c.Address))
	}
	if c.MaxLength < 1 {
		problems = append(problems, fmt.Errorf("max_length: %d is less than 1", c.MaxLength))
	}
	return errors.Join(problems...)
}

// pagerKind returns the sink kind pager.
func pagerKind() sinks.Kind {
	return sinks.NewKind("pager", "a page for each notification, through a desk",
		func(in sinks.Instance, c pagerConfig) (sinks.Sink, error) { return makePager(in, c), nil })
}

// pager asks a desk to page a person. It opens a connection for each page and keeps none, so it
// needs neither Open nor Close.
type pager struct {
	config  pagerConfig
	connect func(ctx context.Context, network, address string) (net.Conn, error)
}

// makePager returns a pager that connects as the program asks (program.Dial), or else directly.
func makePager(in sinks.Instance, c pagerConfig) *pager {
	if in.Dial == nil {
		in.Dial = new(net.Dialer).DialContext
	}
	return &pager{config: c, connect: in.Dial}
}

var (
	_ sinks.Sink          = (*pager)(nil)
	_ sinks.HealthChecker = (*pager)(nil)
)

// Deliver sends the payload as a page. The page has the notification's id, by which the desk
// recognizes a repeat.
func (p *pager) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if len(d.Payload) > p.config.MaxLength {
		return "", sinks.Invalid(fmt.Errorf("the page is %d bytes long, the limit is %d", len(d.Payload), p.config.MaxLength))
	}
	answer, err := p.ask(ctx, fmt.Sprintf("PAGE %q %q\n", d.ID, d.Payload))
	if err != nil {
		return "", err
	}
	return outcome(answer)
}

// CheckHealth connects to the desk and disconnects.
func (p *pager) CheckHealth(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ask sends a line and returns the line that the desk answers.
func (p *pager) ask(ctx context.Context, line string) (string, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// When the context ends, this deadline ends a write or read that is waiting.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	answer := ""
	if _, err = conn.Write([]byte(line)); err == nil {
		answer, err = bufio.NewReader(conn).ReadString('\n')
	}
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return "", ctx.Err() // the engine ended the attempt, so it knows how to class this error
	}
	return "", sinks.Transient(fmt.Errorf("the desk closed the connection: %w", err)) // perhaps after it accepted the page
}

// dial connects to the desk. A failure does not depend on the notification, so it is unavailable:
// the sink stops deliveries until the desk is reachable again.
func (p *pager) dial(ctx context.Context) (net.Conn, error) {
	conn, err := p.connect(ctx, "tcp", p.config.Address)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, sinks.Unavailable(err)
}

// outcome returns the receipt, or the error of the right class, for the desk's answer.
func outcome(answer string) (notification.Receipt, error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(answer), " ")
	switch word {
	case "OK":
		return notification.Receipt("page " + rest), nil
	case "WAIT":
		pause, err := time.ParseDuration(rest)
		if err != nil {
			return "", sinks.Transient(fmt.Errorf("the desk answers %q", answer))
		}
		return "", sinks.Throttled(time.Now().Add(pause), errors.New("the desk is busy"))
	case "NO":
		return "", sinks.Permanent(errors.New(rest))
	}
	return "", sinks.Transient(fmt.Errorf("the desk answers %q", answer))
}
