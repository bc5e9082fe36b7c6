package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
)

func newHealth(p *command.Invocation) *cobra.Command {
	h := &healthProbe{Invocation: p}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether the forwarder on this machine is alive or ready",
		Long: `Check whether the forwarder on this machine is alive, or with --ready whether it is
ready, for health checks that run a command. It requests /livez or /readyz at the
configuration's observe.address and prints the answer. The exit code is 0 if the
forwarder is alive or ready, else 1.`,
		Example: `  waybill health
  waybill health --ready --address 127.0.0.1:8090`,
		Args: command.NoArguments,
		RunE: h.run,
	}
	h.flags.Add(cmd)
	cmd.Flags().BoolVar(&h.ready, "ready", false, "check readiness: the last looks at the log and at the leases are recent, and the forwarder is not stopping")
	cmd.Flags().StringVar(&h.address, "address", "", "host and port of the forwarder, instead of the configuration's observe.address")
	cmd.Flags().DurationVar(&h.timeout, "timeout", 2*time.Second, "how long the answer may take")
	return cmd
}

type healthProbe struct {
	*command.Invocation
	flags   command.SourceFlags
	ready   bool
	address string
	timeout time.Duration
}

func (h *healthProbe) run(cmd *cobra.Command, _ []string) error {
	if h.timeout <= 0 {
		return command.WrongUsage(cmd, fmt.Errorf("--timeout is %s: use more than 0", h.timeout))
	}
	if h.address == "" {
		address, err := config.LoadAddress(h.Source(h.flags))
		if err != nil {
			return err
		}
		h.address = address
	}
	host, port, err := net.SplitHostPort(h.address)
	switch {
	case h.address == "":
		return command.WrongUsage(cmd, errors.New("the configuration has no observe.address: use --address"))
	case err != nil:
		return command.WrongUsage(cmd, fmt.Errorf("--address is %q: use host:port", h.address))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost" // the forwarder listens on all addresses
	}
	path := "/livez"
	if h.ready {
		path = "/readyz"
	}
	return h.ask(cmd.Context(), "http://"+net.JoinHostPort(host, port)+path)
}

// ask prints the forwarder's answer.
func (h *healthProbe) ask(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// The forwarder is on this machine, so HTTP_PROXY does not apply.
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return fmt.Errorf("no forwarder answers: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(answer))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	terminal.Println(h.Stdout, text)
	return nil
}
