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

// pagerConfig is what stands below "with:" for a pager.
type pagerConfig struct {
	Address   string `yaml:"address" doc:"host:port of the desk that takes pages. Required"`
	MaxLength int    `yaml:"max_length" doc:"bytes of the longest page. Default 500"`
}

// SetDefaults runs before the user's values are decoded over it.
func (c *pagerConfig) SetDefaults() { c.MaxLength = 500 }

// Validate reports all mistakes at once, each by the name that the user typed.
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

// pagerKind is the sink kind pager.
func pagerKind() sinks.Kind {
	return sinks.NewKind("pager", "a page for each notification, to the desk",
		func(_ sinks.Instance, c pagerConfig) (sinks.Sink, error) { return &pager{c}, nil })
}

// pager asks a desk to page a person, over a connection for each page. It holds
// nothing between them, so it needs neither Open nor Close.
type pager struct{ config pagerConfig }

var (
	_ sinks.Sink          = (*pager)(nil)
	_ sinks.HealthChecker = (*pager)(nil)
)

// Deliver sends the payload as a page. The desk gets the notification's id, so
// that it can tell a page that comes again.
func (p *pager) Deliver(ctx context.Context, d *notification.Delivery) (notification.Receipt, error) {
	if len(d.Payload) > p.config.MaxLength {
		return "", sinks.Permanent(fmt.Errorf("the page is %d bytes long, the limit is %d", len(d.Payload), p.config.MaxLength))
	}
	answer, err := p.ask(ctx, fmt.Sprintf("PAGE %q %q\n", d.ID, d.Payload))
	if err != nil {
		return "", err
	}
	return understand(answer)
}

// CheckHealth connects and hangs up.
func (p *pager) CheckHealth(ctx context.Context) error {
	conn, err := p.dial(ctx)
	if err != nil {
		return err
	}
	return conn.Close()
}

// ask sends a line and waits for the line that answers it.
func (p *pager) ask(ctx context.Context, line string) (string, error) {
	conn, err := p.dial(ctx)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// The end of the context ends whatever the connection is waiting for.
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
		return "", ctx.Err() // the engine knows what it means that it ended the attempt
	}
	return "", sinks.Transient(fmt.Errorf("the desk hung up: %w", err)) // with or without the page
}

// dial's errors are the destination's, whatever the notification is: the whole sink
// waits until it is there again.
func (p *pager) dial(ctx context.Context) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", p.config.Address)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, sinks.Unavailable(err)
}

// understand turns the desk's answer into what the engine understands.
func understand(answer string) (notification.Receipt, error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(answer), " ")
	switch word {
	case "OK":
		return notification.Receipt("page " + rest), nil
	case "WAIT":
		pause, err := time.ParseDuration(rest)
		if err != nil {
			return "", sinks.Transient(fmt.Errorf("the desk answers %q", answer))
		}
		return "", sinks.Throttled(time.Now().Add(pause), errors.New("the desk is overrun"))
	case "NO":
		return "", sinks.Permanent(errors.New(rest))
	}
	return "", sinks.Transient(fmt.Errorf("the desk answers %q", answer))
}
