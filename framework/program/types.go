package program

import (
	"cmp"
	"errors"
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
		Long: `List the types that there are in the last rows of the log and among parked deliveries,
those that routes name, and those that the program knows, if it is one with types of its
own: with the versions that there are, the sinks to which each goes, under which conditions,
or what becomes of it where no route matches. waybill config explain shows more about one type.

Before an upcaster, an alias or a type is removed from a program, --all shows whether
something of it is left: it looks through the whole log and all that is parked, which takes
about a second for a million rows. A program with types of its own shows which of the
versions it cannot decode.

Without a configuration, with --database only, it shows what there is, and not where it
goes. With --offline it looks at the configuration only, and needs no database.`,
		Args: noArguments,
		RunE: t.run,
	}
	t.add(cmd)
	cmd.Flags().IntVar(&t.rows, "rows", 100_000, "how many of the last rows of the log, and of parked deliveries, to look at")
	cmd.Flags().BoolVar(&t.all, "all", false, "look at the whole log, and at all that is parked")
	cmd.Flags().BoolVar(&t.offline, "offline", false, "look at the configuration only")
	return cmd
}

type types struct {
	looking
	rows    int
	all     bool
	offline bool
}

// typeLine is a type and where it goes.
type typeLine struct {
	Type string `json:"type"`
	// Versions are those that were found, in their order, and OccurredOn when the last
	// row of any occurred.
	Versions   []versionLine `json:"versions"`
	OccurredOn time.Time     `json:"occurred_on,omitzero"`
	// Registered is what the program knows of it; nil where it knows nothing.
	Registered *registered `json:"registered,omitempty"`
	// Unrouted is what becomes of it where no route matches.
	Unrouted forwarder.Unrouted `json:"unrouted,omitempty"`
	Sinks    []sinkLine         `json:"sinks"`
}

// versionLine is a version of a type in the log and among parked deliveries.
type versionLine struct {
	Version int   `json:"version"`
	Rows    int64 `json:"rows"`
	Parked  int64 `json:"parked"`
	// Decodes reports whether the program has a decoder for it; nil: it has no types.
	Decodes *bool `json:"decodes,omitempty"`
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
	switch {
	case t.rows < 1:
		return wrongUsage(cmd, fmt.Errorf("--rows is %d: use at least 1, or --all", t.rows))
	case t.all && t.offline:
		return wrongUsage(cmd, errors.New("--all looks at the log and --offline does not: leave one out"))
	}
	load := config.LoadRoutes
	if t.offline {
		load = config.LoadDeliveries // which needs no database
	}
	c, err := load(t.source(t.flags), t.options)
	if err != nil {
		return err
	}
	routes, err := c.Table()
	if err != nil {
		return err
	}
	counts := make(map[string][]store.TypeCount)
	for pattern := range c.Routes {
		if !strings.HasSuffix(pattern, "*") {
			counts[pattern] = nil
		}
	}
	if t.options.Types != nil {
		for _, known := range t.options.Types.Types() {
			counts[known.Name] = nil
		}
	}
	if !t.offline {
		if err := t.count(cmd, counts); err != nil {
			return err
		}
	}
	lines := []typeLine{}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		line := typeLine{Type: name, Versions: []versionLine{}, Sinks: []sinkLine{}}
		if routes != nil {
			line.route(routes, cmp.Or(c.Forwarder.Unrouted, forwarder.UnroutedPark))
		}
		line.Registered = t.registered(name)
		line.add(counts[name], t.options.Types != nil)
		lines = append(lines, line)
	}
	if t.json {
		return printJSON(t.stdout, lines)
	}
	printTypes(t.stdout, lines, routes != nil, t.options.Types != nil)
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

// decodes reports whether the program reads a version.
func (r *registered) decodes(version int) bool {
	return r != nil && r.Oldest <= version && version <= r.Version
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
func (t *types) count(cmd *cobra.Command, counts map[string][]store.TypeCount) error {
	o, cleanup, err := t.open(cmd)
	if err != nil {
		return err
	}
	defer cleanup()
	limit := t.rows
	if t.all {
		limit = 0
	}
	found, err := o.Types(cmd.Context(), limit)
	for _, f := range found {
		counts[f.Type] = append(counts[f.Type], f)
	}
	return err
}

// route notes where the type goes.
func (l *typeLine) route(routes *route.Table, unrouted forwarder.Unrouted) {
	for _, sink := range routes.Sinks(l.Type) {
		l.Sinks = append(l.Sinks, sinkLine{sink, routesOf(routes.To(sink), l.Type)})
	}
	if len(l.Sinks) == 0 {
		l.Unrouted = unrouted
	}
}

// add notes the versions that were found.
func (l *typeLine) add(counts []store.TypeCount, judge bool) {
	for _, c := range counts {
		v := versionLine{Version: c.Version, Rows: c.Rows, Parked: c.Parked}
		if judge {
			decodes := l.Registered.decodes(c.Version)
			v.Decodes = &decodes
		}
		l.Versions = append(l.Versions, v)
		if c.OccurredOn.After(l.OccurredOn) {
			l.OccurredOn = c.OccurredOn
		}
	}
}

// inProgram is what the program knows of it, and which versions it cannot decode.
func (l *typeLine) inProgram() string {
	text := l.Registered.text(l.Type)
	var not []string
	for _, v := range l.Versions {
		if !*v.Decodes {
			not = append(not, fmt.Sprintf("v%d", v.Version))
		}
	}
	if len(not) > 0 {
		text += "; cannot decode " + strings.Join(not, ", ")
	}
	return text
}

func printTypes(w io.Writer, lines []typeLine, withRoutes, withRegistered bool) {
	columns := []any{"type", "versions", "rows", "parked", "last"}
	if withRoutes {
		columns = append(columns, "goes to")
	}
	if withRegistered {
		columns = append(columns, "in the program")
	}
	t := newTable(w, columns...)
	for _, line := range lines {
		var versions []string
		var rows, parked int64
		for _, v := range line.Versions {
			versions = append(versions, fmt.Sprint(v.Version))
			rows += v.Rows
			parked += v.Parked
		}
		row := table.Row{line.Type, orDash(strings.Join(versions, ", ")), rows, parked, timeOrDash(line.OccurredOn)}
		if withRoutes {
			row = append(row, line.goesTo())
		}
		if withRegistered {
			row = append(row, line.inProgram())
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
