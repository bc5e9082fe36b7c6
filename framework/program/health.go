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
)

func newHealth(p *invocation) *cobra.Command {
	h := &healthProbe{invocation: p}
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask a forwarder of this machine whether it is alive, or ready",
		Long: `Ask a forwarder of this machine whether it is alive, or with --ready whether it works,
for probes that run a command. It asks /livez or /readyz at the configuration's
observe.address, prints the answer, and exits with 0 if that is yes, else with 1.`,
		Example: `  waybill health
  waybill health --ready --address 127.0.0.1:8090`,
		Args: noArguments,
		RunE: h.run,
	}
	h.flags.add(cmd)
	cmd.Flags().BoolVar(&h.ready, "ready", false, "ask whether it works: its last round trip to the database is not too long ago, and it does not stop")
	cmd.Flags().StringVar(&h.address, "address", "", "host and port of the forwarder, in place of the configuration's observe.address")
	cmd.Flags().DurationVar(&h.timeout, "timeout", 2*time.Second, "how long the answer may take")
	return cmd
}

type healthProbe struct {
	*invocation
	flags   sourceFlags
	ready   bool
	address string
	timeout time.Duration
}

func (h *healthProbe) run(cmd *cobra.Command, _ []string) error {
	if h.timeout <= 0 {
		return wrongUsage(cmd, fmt.Errorf("--timeout is %s: use more than 0", h.timeout))
	}
	if h.address == "" {
		o, err := config.LoadObserve(h.source(h.flags))
		if err != nil {
			return err
		}
		h.address = o.Address
	}
	host, port, err := net.SplitHostPort(h.address)
	switch {
	case h.address == "":
		return wrongUsage(cmd, errors.New("there is no observe.address in the configuration: name one with --address"))
	case err != nil:
		return wrongUsage(cmd, fmt.Errorf("--address is %q: use host:port", h.address))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost" // all addresses of the machine
	}
	path := "/livez"
	if h.ready {
		path = "/readyz"
	}
	return h.ask(cmd.Context(), "http://"+net.JoinHostPort(host, port)+path)
}

// ask prints what the forwarder answers.
func (h *healthProbe) ask(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// Not through a proxy of the environment: the forwarder is of this machine.
	response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
	if err != nil {
		return err
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
	fmt.Fprintln(h.stdout, text)
	return nil
}
