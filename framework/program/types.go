package program

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/route"
	"github.com/waybill-go/waybill/framework/store"
)

func newTypes(p *invocation) *cobra.Command {
	t := &types{looking: looking{invocation: p}}
	cmd := &cobra.Command{
		Use:   "types",
		Short: "List the types of notifications, and where they go",
		Long: `List the types that there are in the last rows of the log, those that routes name, and
those that the program knows, if it is one with types of its own: with the sinks to which
each goes, under which conditions, or what becomes of it where no route matches. waybill config explain shows more about one type.

With --offline it looks at no log, and needs no database.`,
		Args: noArguments,
		RunE: t.run,
	}
	t.add(cmd)
	cmd.Flags().IntVar(&t.rows, "rows", 100_000, "how many of the last rows of the log to look at")
	cmd.Flags().BoolVar(&t.offline, "offline", false, "look at the configuration only")
	return cmd
}

type types struct {
	looking
	rows    int
	offline bool
}

// typeLine is a type and where it goes.
type typeLine struct {
	Type string `json:"type"`
	// Version is the highest in the rows that were looked at, and Count how many they
	// are; 0 where there is none.
	Version    int       `json:"version,omitempty"`
	Count      int64     `json:"count"`
	OccurredOn time.Time `json:"occurred_on,omitzero"`
	// Registered is what the program knows of it; nil where it knows nothing.
	Registered *registered `json:"registered,omitempty"`
	// Unrouted is what becomes of it where no route matches.
	Unrouted forwarder.Unrouted `json:"unrouted,omitempty"`
	Sinks    []sinkLine         `json:"sinks"`
}

// registered is what the program's types say of one.
type registered struct {
	Type    string   `json:"type"` // its present name
	GoType  string   `json:"go_type"`
	Version int      `json:"version"` // that is written
	Oldest  int      `json:"oldest"`  // that can be read
	Aliases []string `json:"aliases"`
}

// sinkLine is a sink and the rules that lead there.
type sinkLine struct {
	Sink   string      `json:"sink"`
	Routes []routeView `json:"routes"`
}

func (t *types) run(cmd *cobra.Command, _ []string) error {
	if t.rows < 1 {
		return wrongUsage(cmd, fmt.Errorf("--rows is %d: use at least 1", t.rows))
	}
	c, err := config.LoadDeliveries(t.source(t.flags), t.options)
	if err != nil {
		return err
	}
	routes, err := c.Table()
	if err != nil {
		return err
	}
	counts := make(map[string]store.TypeCount)
	for pattern := range c.Routes {
		if !strings.HasSuffix(pattern, "*") {
			counts[pattern] = store.TypeCount{Type: pattern}
		}
	}
	if t.options.Types != nil {
		for _, known := range t.options.Types.Types() {
			counts[known.Name] = store.TypeCount{Type: known.Name}
		}
	}
	if !t.offline {
		if err := t.count(cmd, counts); err != nil {
			return err
		}
	}
	lines := []typeLine{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		line := lineOf(counts[name], routes, cmp.Or(c.Forwarder.Unrouted, forwarder.UnroutedPark))
		line.Registered = t.registered(name)
		lines = append(lines, line)
	}
	if t.json {
		return printJSON(t.stdout, lines)
	}
	printTypes(t.stdout, lines, t.options.Types != nil)
	return nil
}

// registered is what the program knows of a type, by its name or an alias.
func (t *types) registered(name string) *registered {
	if t.options.Types == nil {
		return nil
	}
	known, ok := t.options.Types.Lookup(name)
	if !ok {
		return nil
	}
	return &registered{known.Name, known.GoType, known.Version, known.Oldest, append([]string{}, known.Aliases...)}
}

// text is as it stands in a table, for a type of that name: shop.OrderPlaced v2, reads from v1.
func (r *registered) text(name string) string {
	switch {
	case r == nil:
		return "unknown"
	case r.Type != name:
		return "alias of " + r.Type
	case r.Oldest < r.Version:
		return fmt.Sprintf("%s v%d, reads from v%d", r.GoType, r.Version, r.Oldest)
	}
	return fmt.Sprintf("%s v%d", r.GoType, r.Version)
}

// count adds what the log has.
func (t *types) count(cmd *cobra.Command, counts map[string]store.TypeCount) error {
	o, cleanup, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	found, err := o.Types(cmd.Context(), t.rows)
	for _, f := range found {
		counts[f.Type] = f
	}
	return err
}

func lineOf(n store.TypeCount, routes *route.Table, unrouted forwarder.Unrouted) typeLine {
	line := typeLine{Type: n.Type, Version: n.Version, Count: n.Count, OccurredOn: n.OccurredOn, Sinks: []sinkLine{}}
	for _, sink := range routes.Sinks(n.Type) {
		line.Sinks = append(line.Sinks, sinkLine{sink, routesOf(routes.To(sink), n.Type)})
	}
	if len(line.Sinks) == 0 {
		line.Unrouted = unrouted
	}
	return line
}

func printTypes(w io.Writer, lines []typeLine, withRegistered bool) {
	columns := []any{"type", "version", "rows", "last", "goes to"}
	if withRegistered {
		columns = append(columns, "in the program")
	}
	t := newTable(w, columns...)
	for _, line := range lines {
		version, last := "-", "-"
		if line.Count > 0 {
			version, last = fmt.Sprint(line.Version), timeText(line.OccurredOn)
		}
		row := table.Row{line.Type, version, line.Count, last, line.goesTo()}
		if withRegistered {
			row = append(row, line.Registered.text(line.Type))
		}
		t.AppendRow(row)
	}
	t.Render()
}

// goesTo names the sinks with their conditions: events, partner when payload.total > 100.
func (l typeLine) goesTo() string {
	switch l.Unrouted {
	case forwarder.UnroutedPark:
		return "no route: parked as dead under " + store.SinkUnrouted
	case forwarder.UnroutedIgnore:
		return "no route: passed over"
	}
	var texts []string
	for _, s := range l.Sinks {
		var conditions []string
		for _, r := range s.Routes {
			if r.When == "" {
				conditions = nil
				break // it always holds, so that the others only choose payloads
			}
			conditions = append(conditions, r.When)
		}
		text := s.Sink
		if len(conditions) > 0 {
			text += " when " + strings.Join(conditions, " or ")
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}
