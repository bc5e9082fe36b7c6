package program

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/internal/duration"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/program/internal/command"
	"github.com/waybill-go/waybill/framework/program/internal/terminal"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/webhooks"
)

func newExplain(p *command.Invocation) *cobra.Command {
	e := &explain{Invocation: p}
	cmd := &cobra.Command{
		Use:   "explain TYPE...",
		Short: "Show where notifications of a type go, and how they are delivered",
		Long: `Show which sinks the notifications of each type go to: by which routes, under which
conditions and with which payload, or what happens to them if no route matches. Show
also the settings of their deliveries to each sink, with defaults filled in: threshold,
attempts, the pauses between them and which of retry.types they come from, timeout,
rate, on_dead, collect and hours.

--data also evaluates the conditions for a notification with that payload, and shows
what each sink would get. Nothing is sent.

It reads only the routes and the delivery settings, so it needs neither the database's
address nor the sinks' secrets.`,
		Example: `  waybill config explain order.placed customer.moved
  waybill config explain order.placed --data order.json --metadata tenant=acme`,
		Args: someTypes,
		RunE: e.run,
	}
	e.flags.AddFile(cmd)
	e.sample.add(cmd, "evaluate the conditions for")
	cmd.Flags().BoolVar(&e.json, "json", false, "print the result as JSON")
	return cmd
}

// someTypes is the Args of commands that take types.
func someTypes(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return command.WrongUsage(cmd, errors.New("name a notification type, such as order.placed"))
	}
	for _, typ := range args {
		if err := notification.ValidateType(typ); err != nil {
			return command.WrongUsage(cmd, err)
		}
	}
	return nil
}

type explain struct {
	*command.Invocation
	flags  command.SourceFlags
	sample sample
	json   bool
}

// typeView is where the notifications of a type go.
type typeView struct {
	Type string `json:"type"`
	// RoutedAs is the name of the type, if Type is an alias of it.
	RoutedAs string `json:"routed_as,omitempty"`
	// Unrouted is set if no route matches.
	Unrouted forwarder.Unrouted `json:"unrouted,omitempty"`
	Sinks    []deliveryView     `json:"sinks"`
}

// deliveryView has the settings of the deliveries of a type to a sink.
type deliveryView struct {
	Sink        string            `json:"sink"`
	Kind        string            `json:"kind"`
	Routes      []admin.RouteRule `json:"routes"`
	Sample      *sampleView       `json:"sample,omitempty"`
	Parallelism parallelismView   `json:"parallelism"`
	Retry       retryView         `json:"retry"`
	Timeout     string            `json:"timeout"`
	Rate        string            `json:"rate,omitempty"`
	OnDead      string            `json:"on_dead"`
	Hours       string            `json:"hours,omitempty"`
	// Collect is nil if the sink does not collect.
	Collect *collectView `json:"collect,omitempty"`
}

type collectView struct {
	By      string `json:"by"`
	Keep    string `json:"keep"`
	Wait    string `json:"wait"`
	MaxWait string `json:"max_wait"`
	Size    int    `json:"size,omitempty"`
	text    string
}

type parallelismView struct {
	Threshold int           `json:"threshold,omitempty"`
	Above     string        `json:"above,omitempty"`
	Adaptive  *adaptiveView `json:"adaptive,omitempty"`
}

type adaptiveView struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

func (p parallelismView) String() string {
	if p.Adaptive != nil {
		return fmt.Sprintf("%d to %d", p.Adaptive.Min, p.Adaptive.Max)
	}
	return fmt.Sprintf("%d %s", p.Threshold, p.Above)
}

type retryView struct {
	// Types is the pattern in retry.types that these settings come from; "" is retry itself.
	Types       string   `json:"types,omitempty"`
	MaxAttempts int      `json:"max_attempts,omitempty"`
	MaxAge      string   `json:"max_age,omitempty"`
	Initial     string   `json:"initial,omitempty"`
	Max         string   `json:"max,omitempty"`
	Pauses      []string `json:"pauses,omitempty"`
}

func (e *explain) run(cmd *cobra.Command, args []string) error {
	source, err := e.FileSource(cmd, e.flags)
	if err != nil {
		return err
	}
	c, err := config.LoadDeliveries(source, e.Options)
	if err != nil {
		return err
	}
	routes, err := c.Table()
	if err != nil {
		return err
	}
	if err := e.sample.read(cmd); err != nil {
		return err
	}
	views := make([]typeView, len(args))
	for i, typ := range args {
		views[i] = e.typeOf(c, routes, typ)
	}
	if e.json {
		return command.PrintJSON(e.Stdout, views)
	}
	for i, view := range views {
		if i > 0 {
			terminal.Println(e.Stdout)
		}
		printType(e.Stdout, view)
	}
	return nil
}

func (e *explain) typeOf(c *config.Config, routes *route.Table, typ string) typeView {
	view := typeView{Type: typ, Sinks: []deliveryView{}}
	name := routes.TypeOf(typ)
	if name != typ {
		view.RoutedAs = name
	}
	for _, sink := range routes.Sinks(typ) {
		path := routes.To(sink)
		delivery := deliveryOf(c, sink, name)
		delivery.Routes = admin.RulesOf(path, typ)
		if e.sample.file != "" {
			delivery.Sample = e.sample.ask(path, typ, e.Options.Types)
		}
		view.Sinks = append(view.Sinks, delivery)
	}
	switch {
	case len(view.Sinks) > 0:
	case !routes.Unrouted().Matches(typ): // one of Waybill's own, beside a route for *
		view.Unrouted = forwarder.UnroutedIgnore
	default:
		view.Unrouted = cmp.Or(c.Forwarder.Unrouted, forwarder.UnroutedPark)
	}
	return view
}

func deliveryOf(c *config.Config, sink, typ string) deliveryView {
	s, from := c.Effective(sink, typ)
	view := deliveryView{
		Sink:        sink,
		Kind:        c.Sinks[sink].Kind,
		Parallelism: parallelismView{Threshold: s.Parallelism.Threshold, Above: string(s.Parallelism.Above)},
		Retry:       retryOf(s.Retry, from),
		Timeout:     duration.Text(s.Timeout),
		Rate:        s.Rate.String(),
		OnDead:      string(s.OnDead),
		Hours:       s.Hours.String(),
	}
	if s.Parallelism.IsAdaptive() {
		view.Parallelism = parallelismView{Adaptive: new(adaptiveView(s.Parallelism.Adaptive))}
	}
	if c := s.Collect; c.On() {
		view.Collect = &collectView{cmp.Or(c.By, "key"), string(c.Keep), duration.Text(c.Wait), duration.Text(c.MaxWait), c.Size, c.String()}
	}
	return view
}

func retryOf(r forwarder.Retry, from string) retryView {
	view := retryView{Types: from, MaxAttempts: r.Attempts()}
	for _, pause := range r.Pauses {
		view.Pauses = append(view.Pauses, duration.Text(pause))
	}
	if len(r.Pauses) == 0 {
		view.Initial, view.Max = duration.Text(r.Initial), duration.Text(r.Max)
	}
	if r.MaxAge > 0 {
		view.MaxAge = duration.Text(r.MaxAge)
	}
	return view
}

func (r retryView) attempts() string {
	if r.MaxAttempts == 0 {
		return "-"
	}
	return strconv.Itoa(r.MaxAttempts)
}

// name returns the type, and what an alias is routed as.
func (v typeView) name() string {
	switch {
	case v.Type == webhooks.Type:
		return v.Type + " (the delivery of a notification to a customer's endpoint)"
	case v.RoutedAs == "":
		return v.Type
	}
	return v.Type + " (an alias, routed as " + v.RoutedAs + ")"
}

func printType(w io.Writer, view typeView) {
	switch {
	case view.Unrouted == forwarder.UnroutedIgnore && notification.IsReserved(view.Type):
		terminal.Printf(w, "%s: one of Waybill's own types, which no route matches: it is skipped\n", view.name())
		return
	case view.Unrouted == forwarder.UnroutedIgnore:
		terminal.Printf(w, "%s: no route matches, so it is skipped (forwarder.unrouted: ignore)\n", view.name())
		return
	case view.Unrouted != "":
		terminal.Printf(w, "%s: no route matches, so it is parked as dead under the sink %s (forwarder.unrouted: park)\n", view.name(), store.SinkUnrouted)
		return
	}
	terminal.Println(w, view.name())
	t := command.NewTable(w, "sink", "kind", "routes", "threshold", "attempts", "pauses", "max age", "by", "timeout", "rate", "on dead")
	for _, d := range view.Sinks {
		by := "retry"
		if d.Retry.Types != "" {
			by = "retry.types." + d.Retry.Types
		}
		t.AppendRow(table.Row{
			d.Sink, d.Kind, d.patterns(), d.Parallelism,
			d.Retry.attempts(), d.Retry.pauses(), command.OrDash(d.Retry.MaxAge), by, d.Timeout, command.OrDash(d.Rate), d.OnDead,
		})
	}
	t.Render()
	for _, d := range view.Sinks {
		if d.Hours != "" {
			terminal.Printf(w, " %s: deliveries begin from %s\n", d.Sink, d.Hours)
		}
	}
	for _, d := range view.Sinks {
		d.printRules(w)
		if d.Collect != nil {
			terminal.Printf(w, " %s: collects %s\n", d.Sink, d.Collect.text)
		}
	}
	for _, d := range view.Sinks {
		if d.Sample != nil {
			d.Sample.print(w, d.Sink)
		}
	}
}

// patterns returns the patterns of the routes, without duplicates.
func (d deliveryView) patterns() string {
	var patterns []string
	for _, r := range d.Routes {
		if !slices.Contains(patterns, r.Route) {
			patterns = append(patterns, r.Route)
		}
	}
	return strings.Join(patterns, ", ")
}

// printRules prints the rules of a sink if one of them has a condition or a payload.
func (d deliveryView) printRules(w io.Writer) {
	if !slices.ContainsFunc(d.Routes, func(r admin.RouteRule) bool { return r.When != "" || r.Payload != nil }) {
		return
	}
	for _, r := range d.Routes {
		terminal.Printf(w, " %s: %s", d.Sink, r.Route)
		if r.When != "" {
			terminal.Printf(w, ", when %s", r.When)
		}
		if r.Payload != nil {
			fields := make([]string, 0, len(r.Payload))
			for _, name := range slices.Sorted(maps.Keys(r.Payload)) {
				fields = append(fields, name+": "+r.Payload[name])
			}
			terminal.Printf(w, ", with the payload {%s}", strings.Join(fields, ", "))
		}
		terminal.Println(w)
	}
}

// pauses returns the pauses between attempts, as in "1s to 15m", or each of them.
func (r retryView) pauses() string {
	if len(r.Pauses) > 0 {
		return strings.Join(r.Pauses, ", ")
	}
	return r.Initial + " to " + r.Max
}
