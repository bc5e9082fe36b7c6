package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/alerts"
	"github.com/waybill-go/waybill/framework/forwarder"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/capture"
)

func checkLag(ctx context.Context, x *examination) (verdict, error) {
	holders, err := x.store.Holders(ctx, nil)
	if err != nil {
		return verdict{}, err
	}
	membership, err := x.store.Membership(ctx)
	if err != nil {
		return verdict{}, err
	}
	now, look := x.now(), admin.Look{Membership: membership}
	var late, texts []string
	for _, h := range holders {
		text := fmt.Sprintf("%s from offset %d on, %s old", h.Sink, h.Offset, age(now.Sub(h.OccurredOn)))
		if held := look.Holding(h.Sink); len(held) > 0 {
			text += " (" + held[0].Text + ")"
		}
		texts = append(texts, text)
		if now.Sub(h.OccurredOn) >= admin.LateAfter {
			late = append(late, text)
		}
	}
	switch {
	case len(late) > 0:
		return warn("waybill status shows what delays a sink; parallelism.threshold raises its speed", "not settled: %s", some(late)), nil
	case len(texts) > 0:
		return ok("not settled: %s", some(texts)), nil
	}
	return ok("everything is settled"), nil
}

// parkedFigures counts the parked deliveries once for all checks.
func (x *examination) parkedFigures(ctx context.Context) (_ []store.ParkedFigures, err error) {
	if !x.counted {
		x.parked, err = x.store.ParkedFigures(ctx)
		x.counted = err == nil
	}
	return x.parked, err
}

// parkedCount formats a figure, which the store counts up to ParkedLimit.
func parkedCount(n int) string {
	if n >= store.ParkedLimit {
		return fmt.Sprintf("%d or more", n)
	}
	return fmt.Sprint(n)
}

// figure calls of for each sink and lists the sinks for which the number is above 0, as texts
// such as "partner: 3 of its keys", and as names.
func (x *examination) figure(ctx context.Context, of func(store.ParkedFigures) (int, string)) (texts, sinks []string, err error) {
	all, err := x.parkedFigures(ctx)
	for _, f := range all {
		if n, text := of(f); n > 0 {
			texts = append(texts, fmt.Sprintf("%s: %s%s", f.Sink, parkedCount(n), text))
			sinks = append(sinks, f.Sink)
		}
	}
	return texts, sinks, err
}

func checkOverdue(ctx context.Context, x *examination) (verdict, error) {
	all, err := x.parkedFigures(ctx)
	if err != nil {
		return verdict{}, err
	}
	var texts []string
	for _, f := range all {
		if f.Overdue > 0 {
			texts = append(texts, fmt.Sprintf("%s: %s, for up to %s", f.Sink, parkedCount(f.Overdue), age(f.LongestDue)))
		}
	}
	if len(texts) > 0 {
		return warn("start forwarders; waybill status shows what delays a sink", "due for more than a minute: %s", some(texts)), nil
	}
	return ok("nothing is due for more than a minute"), nil
}

func checkDead(ctx context.Context, x *examination) (verdict, error) {
	texts, sinks, err := x.figure(ctx, func(f store.ParkedFigures) (int, string) {
		if f.Sink == store.SinkUnrouted {
			return 0, ""
		}
		return f.Count(store.StateDead), ""
	})
	if err != nil || len(texts) == 0 {
		return ok("none"), err
	}
	return warn("waybill parked list --state dead --sink "+sinks[0]+", then waybill parked requeue or discard", "dead: %s", some(texts)), nil
}

func checkHalted(ctx context.Context, x *examination) (verdict, error) {
	if x.Forwarder == nil {
		return skip("no configuration says which sinks have on_dead: halt", "waybill doctor -c waybill.yaml"), nil
	}
	texts, sinks, err := x.figure(ctx, func(f store.ParkedFigures) (int, string) {
		if x.Forwarder.Sinks[f.Sink].OnDead != forwarder.OnDeadHalt {
			return 0, ""
		}
		return f.DeadKeys, " of its keys"
	})
	if err != nil || len(texts) == 0 {
		return ok("none"), err
	}
	return warn("waybill parked requeue or skip --sink "+sinks[0], "halted: %s", some(texts)), nil
}

func checkUnrouted(ctx context.Context, x *examination) (verdict, error) {
	texts, _, err := x.figure(ctx, func(f store.ParkedFigures) (int, string) {
		if f.Sink != store.SinkUnrouted {
			return 0, ""
		}
		return f.Count(store.StateDead), " without a route"
	})
	if err != nil || len(texts) == 0 {
		return ok("none"), err
	}
	return warn("add routes, then run waybill parked reroute; or set forwarder.unrouted: ignore", "%s", some(texts)), nil
}

func checkHooks(ctx context.Context, x *examination) (verdict, error) {
	texts, sinks, err := x.figure(ctx, func(f store.ParkedFigures) (int, string) {
		return f.Hooks, "" // the errors may repeat private data
	})
	if err != nil || len(texts) == 0 {
		return ok("no hook fails"), err
	}
	return warn("repair the hook: the forwarder calls it again; waybill parked list --state settling --sink "+sinks[0], "a hook fails for %s", some(texts)), nil
}

func checkTypes(ctx context.Context, x *examination) (verdict, error) {
	if x.Forwarder == nil || x.Forwarder.Types == nil {
		return skip("this program has no types registered", "run this check with the program that has them (program.Types)"), nil
	}
	counts, err := x.store.Types(ctx, x.typesRows)
	if err != nil {
		return verdict{}, err
	}
	unknown := make(map[string]int64)
	for _, c := range counts {
		if t, registered := x.Forwarder.Types.Lookup(c.Type); notification.IsReserved(c.Type) || notification.IsAlert(c.Type) {
			continue // Waybill publishes it
		} else if !registered || c.Version < t.Oldest || c.Version > t.Version {
			unknown[fmt.Sprintf("%s v%d", c.Type, c.Version)] += c.Rows + c.Parked
		}
	}
	if len(unknown) == 0 {
		return ok("the program decodes all of the last %d rows", x.typesRows), nil
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		texts = append(texts, fmt.Sprintf("%s (%d)", name, unknown[name]))
	}
	return warn("register the type, an alias or an upcaster; waybill types lists the types", "the program cannot decode %s", some(texts)), nil
}

func checkCaptures(ctx context.Context, x *examination) (verdict, error) {
	if x.schema(ctx) != nil {
		return skip("the tables do not have this program's version: see schema", ""), nil
	}
	captured, faults, err := capture.Faults(ctx, x.DB, *x.PostgreSQL)
	if err != nil {
		return verdict{}, err
	}
	if len(faults) > 0 {
		return fail("waybill migrate --capture TABLE --key COLUMN --columns …, or --uncapture TABLE", "%s", some(faults)), nil
	}
	return ok("%s", count(captured, "captured table")), nil
}

func checkSchedules(ctx context.Context, x *examination) (verdict, error) {
	all, err := x.store.Schedules(ctx)
	if err != nil {
		return verdict{}, err
	}
	var late []string
	known := make(map[string]bool)
	for _, s := range all {
		if known[s.Name] = true; !s.Paused && !s.IsOwn() && s.Late() {
			late = append(late, fmt.Sprintf("%s has been due for %s", s.Name, age(s.Overdue())))
		}
	}
	for _, name := range slices.Sorted(slices.Values(x.Schedules)) {
		if !known[name] {
			late = append(late, name+" has never run")
		}
	}
	if len(late) > 0 {
		return warn("run a forwarder whose configuration has the schedules; remove an old one with waybill schedules forget NAME", "%s", some(late)), nil
	}
	return ok("%s, none late", count(len(slices.DeleteFunc(all, store.Schedule.IsOwn)), "schedule")), nil
}

// checkAlerts looks at the alerts that are raised, and whether a forwarder judges.
func checkAlerts(ctx context.Context, x *examination) (verdict, error) {
	switch {
	case x.Mistakes != nil:
		return skip("the configuration has mistakes", "waybill config check"), nil
	case !x.Alerts.On():
		return ok("the configuration has none"), nil
	}
	all, err := x.store.Schedules(ctx)
	if err != nil {
		return verdict{}, err
	}
	row := slices.IndexFunc(all, func(s store.Schedule) bool { return s.Name == store.ScheduleAlerts })
	if row < 0 || all[row].Late() {
		return warn("run a forwarder with this configuration; its log says what fails", "no forwarder has looked for what to alert of for more than a minute"), nil
	}
	raised, err := alerts.RaisedIn(all[row])
	if err != nil {
		return verdict{}, err
	}
	var unheard []string
	for _, r := range raised {
		if !x.Alerts.Reaches(r.Sink) {
			unheard = append(unheard, r.Text)
		}
	}
	if len(unheard) > 0 {
		return warn("add a sink of another kind to alerts.to", "alerts.to names only the sink that the alert is about: %s", some(unheard)), nil
	}
	text := count(len(raised), "alert") + " raised"
	if only := x.Alerts.To[0].Sink; !x.Alerts.Reaches(only) {
		text += "; an alert about " + only + " would reach no one, since alerts.to names no other sink"
	}
	return ok("%s", text), nil
}
