package forwarder_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A history is what happens to an outbox: publishers, processes, databases, sinks and people act one after the
// other. Each operation stands for itself, so a history from which some are removed is a history too.
type history []op

// op is an operation of a history. Its text is its name and its fields, such as "kill node=2".
type op struct {
	Do     string
	Node   int           // the process that it is about, from 1
	Sink   string        // the sink that it is about
	Mode   string        // a variant of the operation
	N      int           // how many
	For    time.Duration // how long
	Seed   uint64        // decides what is at random in it
	Routes string        // such as x:plain+bank,y:hook
}

func (o op) String() string {
	text := o.Do
	v := reflect.ValueOf(o)
	for i := 1; i < v.NumField(); i++ {
		if !v.Field(i).IsZero() {
			text += fmt.Sprintf(" %s=%v", strings.ToLower(v.Type().Field(i).Name), v.Field(i).Interface())
		}
	}
	return text
}

func (h history) String() string {
	lines := make([]string, len(h))
	for i, o := range h {
		lines[i] = o.String()
	}
	return strings.Join(lines, "\n") + "\n"
}

// parseHistory reads the text of a history. Lines that begin with # are left out.
func parseHistory(text string) (h history, err error) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		o := op{Do: words[0]}
		for _, word := range words[1:] {
			if err := o.set(word); err != nil {
				return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
			}
		}
		h = append(h, o)
	}
	return h, nil
}

// set sets a field, such as n=3.
func (o *op) set(word string) (err error) {
	name, text, _ := strings.Cut(word, "=")
	field := reflect.ValueOf(o).Elem().FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, name) })
	if !field.IsValid() {
		return fmt.Errorf("there is no %q", name)
	}
	switch value := field.Addr().Interface().(type) {
	case *string:
		*value = text
	case *int:
		*value, err = strconv.Atoi(text)
	case *uint64:
		*value, err = strconv.ParseUint(text, 10, 64)
	case *time.Duration:
		*value, err = time.ParseDuration(text)
	}
	return err
}

// What operations can be, for the generator. That of a run of many seeds is an error if one was not exercised.
var (
	sinkKinds     = []string{"plain", "ordered", "loose", "hook", "bank", "addressed", "halting", "newest", "newest-type", "digest"}
	answerModes   = []string{"errors", "permanent", "unavailable", "throttled", "hanging", "panics", "slow", "deaf", "unknown", "invalid", "apart"}
	faultModes    = []string{"fails", "lost", "delayed", "dies-before", "dies-after"}
	faultPlaces   = []string{"write", "begin", "commit"}
	publishModes  = []string{"committed", "rolled-back", "savepoint", "held"}
	peopleActions = []string{"pause-sink", "resume-sink", "requeue", "discard", "replay", "reroute", "cancel"}
)

// exercises are the names of everything that histories exercise, as the interpreter counts it.
func exercises() (all []string) {
	for _, mode := range answerModes {
		all = append(all, "answers "+mode)
	}
	for _, place := range faultPlaces {
		for _, mode := range faultModes {
			all = append(all, "fault "+place+"-"+mode)
		}
	}
	for _, mode := range publishModes {
		all = append(all, "publish "+mode)
	}
	for _, kind := range sinkKinds {
		all = append(all, "delivered by "+kind)
	}
	all = append(all, peopleActions...)
	return append(all, "start", "end", "kill", "pause", "away refused", "away silent", "slow", "clock", "reload same", "reload fresh", "routes", "routes only",
		"another number of lanes", "prune", "scheduled", "far future", "extreme key", "extreme type", "extreme id", "large payload", "stay sink", "stay node",
		"stay destination", "repeat", "no fault", "superseded", "collected")
}

// mostAhead is by how much the clock of the database is wrong at most.
const mostAhead = 45 * time.Second

// generator makes a history from a seed.
type generator struct {
	*rand.Rand
	h      history
	sinks  []string
	routes string
	nodes  int
	lanes  int
	faults bool
	routed bool // routes change
	people bool
}

// one returns one of several values.
func one[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// generate returns the history of a seed.
func generate(seed uint64) history {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 7)), lanes: 1}
	g.nodes = one(g, 1, 1, 2, 2, 3)
	g.faults, g.routed, g.people = g.IntN(5) > 0, g.IntN(4) == 0, g.IntN(3) == 0
	kinds := slices.Clone(sinkKinds)
	g.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	g.sinks = kinds[:1+g.IntN(3)]
	if g.IntN(4) == 0 {
		g.lanes = 1 + g.IntN(4)
	}
	g.routes = g.anyRoutes()
	setup := op{Do: "setup", Seed: g.Uint64() % 1000}
	if g.IntN(5) == 0 {
		setup.Mode = "prune"
	}
	g.add(setup, op{Do: "routes", Routes: g.routes, Mode: g.mode()})
	for node := range g.nodes {
		g.add(g.start(node + 1))
	}
	for range 6 + g.IntN(20) {
		g.step()
	}
	if g.faults && g.IntN(3) == 0 {
		g.stay()
	}
	return g.h
}

func (g *generator) add(ops ...op) { g.h = append(g.h, ops...) }

func (g *generator) start(node int) op {
	if g.IntN(8) == 0 {
		g.lanes = 1 + g.IntN(4)
	}
	return op{Do: "start", Node: node, N: g.lanes}
}

func (g *generator) span(most time.Duration) time.Duration {
	return time.Duration(g.Int64N(int64(most))).Round(time.Millisecond)
}

// step adds what happens next: something is published, then perhaps something goes wrong, and time passes.
func (g *generator) step() {
	for range g.IntN(3) {
		g.publish()
	}
	switch n := g.IntN(20); {
	case n < 3:
		g.restart()
	case n < 5 && g.routed:
		switch g.IntN(6) {
		case 0, 1, 2:
			g.routes = g.anyRoutes()
			g.add(op{Do: "routes", Routes: g.routes, Mode: g.mode()})
		case 3:
			g.rename()
		}
		g.add(op{Do: "reload", Node: g.node(), Mode: one(g, "same", "fresh")})
	case n < 9 && g.people:
		g.act()
	case n < 18 && g.faults:
		g.fail()
	}
	g.add(op{Do: "wait", For: g.span(one(g, 200*time.Millisecond, 2*time.Second, 2*time.Second, 20*time.Second))})
}

func (g *generator) node() int { return 1 + g.IntN(g.nodes) }

func (g *generator) restart() {
	node := g.node()
	g.add(op{Do: "end", Node: node})
	if g.IntN(2) == 0 {
		g.add(op{Do: "wait", For: g.span(3 * time.Second)})
	}
	g.add(g.start(node))
}

// mode says whether the configuration has only the sinks of its routes.
func (g *generator) mode() string {
	if g.routed && g.IntN(3) == 0 {
		return "only"
	}
	return ""
}

// rename replaces a sink of the configuration by another one, which is new or was there before.
func (g *generator) rename() {
	spare := slices.DeleteFunc(slices.Clone(sinkKinds), func(kind string) bool { return slices.Contains(g.sinks, kind) })
	i := g.IntN(len(g.sinks))
	from, to := g.sinks[i], one(g, spare...)
	g.sinks[i], g.routes = to, strings.ReplaceAll(g.routes, from, to)
	g.add(op{Do: "routes", Routes: g.routes, Mode: "only"})
}

func (g *generator) publish() {
	o := op{Do: "publish", N: one(g, 1, 1, 2, 5, 12, 40), Seed: g.Uint64() % 1_000_000_000, Mode: "committed"}
	switch g.IntN(10) {
	case 0:
		o.Mode = "rolled-back"
	case 1:
		o.Mode = "savepoint"
	case 2:
		o.Mode, o.For = "held", g.span(4*time.Second)
	}
	g.add(o)
}

// fail adds a fault.
func (g *generator) fail() {
	node := g.node()
	switch g.IntN(10) {
	case 0, 1, 2:
		g.add(op{Do: "answers", Sink: one(g, g.sinks...), Mode: one(g, append([]string{"ok", "ok"}, answerModes...)...)})
	case 3, 4, 5:
		g.add(op{Do: "fault", Node: node, Mode: one(g, faultPlaces...) + "-" + one(g, faultModes...), N: 1 + g.IntN(12), For: g.span(10 * time.Second)})
		if g.IntN(3) == 0 {
			g.add(op{Do: "wait", For: g.span(3 * time.Second)}, g.start(node))
		}
	case 6:
		g.add(op{Do: "kill", Node: node})
		if g.IntN(2) == 0 {
			g.add(op{Do: "wait", For: g.span(20 * time.Second)})
		}
		g.add(g.start(node))
	case 7:
		g.add(op{Do: "pause", Node: node, For: g.span(40 * time.Second)})
	case 8:
		lasts := g.span(one(g, 2*time.Second, 30*time.Second))
		g.add(one(g, op{Do: "slow", For: lasts, N: 1 + g.IntN(300)}, op{Do: "away", For: lasts, Mode: one(g, "refused", "silent")}))
	case 9:
		g.add(op{Do: "clock", For: g.span(2*mostAhead) - mostAhead})
	}
}

// act adds something that a person does.
func (g *generator) act() {
	o := op{Do: one(g, peopleActions...), Seed: g.Uint64() % 1000}
	if o.Do != "reroute" && o.Do != "cancel" {
		o.Sink = one(g, g.sinks...)
	}
	if o.Do == "discard" {
		o.Mode = one(g, "dead", "any")
	}
	g.add(o)
}

// stay adds a fault of one part that stays, while all others heal and everything else is delivered.
func (g *generator) stay() {
	switch g.IntN(4) {
	case 0:
		g.add(op{Do: "stay", Mode: one(g, "stopped", "killed"), Node: g.node()})
	case 1:
		if slices.Contains(g.sinks, "addressed") {
			g.add(op{Do: "stay", Sink: "addressed", Mode: "destination"})
			return
		}
		fallthrough
	default:
		g.add(op{Do: "stay", Sink: one(g, g.sinks...), Mode: one(g, "unavailable", "hanging", "errors", "throttled", "permanent", "apart")})
	}
}

// patterns are those of routes. Type "w" has none at first.
var patterns = []string{"x", "y", "z.*"}

// anyRoutes returns routes of all patterns, each to some of the sinks. A pattern of routes that change may have none.
func (g *generator) anyRoutes() string {
	var all []string
	for _, pattern := range patterns {
		var to []string
		for _, sink := range g.sinks {
			if g.IntN(3) > 0 {
				to = append(to, sink)
			}
		}
		if len(to) == 0 && (!g.routed || g.IntN(2) > 0) {
			to = []string{one(g, g.sinks...)}
		}
		if len(to) > 0 {
			all = append(all, pattern+":"+strings.Join(to, "+"))
		}
	}
	if g.routed && g.IntN(3) == 0 {
		all = append(all, "w:"+one(g, g.sinks...))
	}
	if len(all) == 0 {
		all = []string{"x:" + g.sinks[0]}
	}
	return strings.Join(all, ",")
}
