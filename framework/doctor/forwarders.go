package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/sinks"
)

func checkForwarders(ctx context.Context, x *examination) (verdict, error) {
	m, err := x.store.Membership(ctx)
	if err != nil {
		return verdict{}, err
	}
	versions, settings := make(map[string][]string), make(map[string][]string)
	for _, f := range m.Members {
		versions[f.Version] = append(versions[f.Version], f.Owner)
		settings[f.Settings] = append(settings[f.Settings], f.Owner)
	}
	var texts []string
	if len(versions) > 1 {
		texts = append(texts, "their versions differ: "+grouped(versions))
	}
	if len(settings) > 1 {
		texts = append(texts, "their configurations differ: "+grouped(settings))
	}
	if len(texts) > 0 {
		return warn("finish the rollout: run all with the same program and configuration", "%s; %s", count(len(m.Members), "forwarder"), strings.Join(texts, "; ")), nil
	}
	if len(m.Members) < 2 {
		return ok("%s", count(len(m.Members), "forwarder")), nil
	}
	return ok("%s of one version and configuration", count(len(m.Members), "forwarder")), nil
}

// grouped lists the owners of each value, such as "v1 (a; b), v2 (c)".
func grouped(groups map[string][]string) string {
	var texts []string
	for _, value := range slices.Sorted(maps.Keys(groups)) {
		texts = append(texts, fmt.Sprintf("%s (%s)", cmp.Or(value, "not reported"), some(groups[value])))
	}
	return strings.Join(texts, ", ")
}

func checkLanes(ctx context.Context, x *examination) (verdict, error) {
	var configured []string
	if x.Forwarder != nil {
		configured = append(slices.Collect(maps.Keys(x.Forwarder.Sinks)), store.SinkUnrouted)
	}
	m, err := x.store.Membership(ctx)
	if err != nil {
		return verdict{}, err
	}
	found := lanes(m, configured)
	if found.status == OK && store.SourceOf(x.store) == nil { // of a source, each lane reads its own partition
		return usefulLanes(m, found), nil
	}
	return found, nil
}

// lanes looks for lanes that have had no owner for longer than a handover takes. configured has the
// sinks of the configuration; nil means that it is not known, and all sinks with lanes count.
func lanes(m store.Membership, configured []string) verdict {
	free := make(map[string]int)
	longest := make(map[string]time.Duration)
	left := make(map[string]bool)
	for _, l := range m.Lanes {
		sink := l.Lane.Sink
		switch {
		case !l.IsUnowned():
		case sink == store.SinkUnrouted && !delivered(m, sink) && len(m.Members) > 0: // every type has a route
		case configured != nil && !slices.Contains(configured, sink):
			left[sink] = true
		default:
			free[sink]++
			longest[sink] = max(longest[sink], l.Free)
		}
	}
	var texts []string
	for _, sink := range slices.Sorted(maps.Keys(free)) {
		texts = append(texts, fmt.Sprintf("%s: %d, for %s", sink, free[sink], age(longest[sink])))
	}
	switch {
	case len(texts) > 0:
		return fail("run waybill forward with these sinks", "%s; lanes without a forwarder: %s", count(len(m.Members), "forwarder"), some(texts))
	case len(left) > 0:
		gone := slices.Sorted(maps.Keys(left))
		return warn("configure the sink again; waybill forget "+gone[0]+" would delete what is pending for it", "no configuration or forwarder has these sinks any more: %s", some(gone))
	}
	return ok("%s, %s", count(len(m.Lanes), "lane"), count(len(m.Members), "forwarder"))
}

// manyLanes is how many lanes a sink may have however few forwarders there are.
const manyLanes = 128

// usefulLanes warns of a sink with more lanes than its forwarders can use; otherwise it returns the verdict given.
func usefulLanes(m store.Membership, otherwise verdict) verdict {
	all, most := make(map[string]int), max(manyLanes, 4*len(m.Members))
	for _, l := range m.Lanes {
		if all[l.Lane.Sink]++; all[l.Lane.Sink] > most {
			return warn(fmt.Sprintf("set outbox.lanes to %d or less", most),
				"%s has more than %d lanes for %s: each reads its backlog by itself, so together they read the log as many times", l.Lane.Sink, most, count(len(m.Members), "forwarder"))
		}
	}
	return otherwise
}

// delivered reports whether a living forwarder can deliver to a sink.
func delivered(m store.Membership, sink string) bool {
	return slices.ContainsFunc(m.Members, func(f store.Member) bool { return slices.Contains(f.Sinks, sink) })
}

// checkLease compares the lease with the slowest checkpoint that any forwarder reports for its
// last minute.
func checkLease(ctx context.Context, x *examination) (verdict, error) {
	m, err := x.store.Membership(ctx)
	if err != nil {
		return verdict{}, err
	}
	lease, slowest, owner := x.engine().Lease, time.Duration(0), ""
	for _, f := range m.Members {
		if f.Checkpoint > slowest {
			slowest, owner = f.Checkpoint, f.Owner
		}
	}
	const fix = "see held-transactions, timeouts and dead-tuples, or raise forwarder.lease"
	switch {
	case slowest >= lease*2/3:
		return fail(fix, "a checkpoint of %s took %s; the lease is %s", owner, age(slowest), lease), nil
	case slowest >= lease/5:
		return warn(fix, "a checkpoint of %s took %s; the lease is %s", owner, age(slowest), lease), nil
	}
	return ok("the slowest checkpoint of the last minute took %s; the lease is %s", age(slowest), lease), nil
}

// checkSinks checks all sinks in parallel.
func checkSinks(ctx context.Context, x *examination) (verdict, error) {
	if x.Forwarder == nil {
		return skip("no configuration says which sinks there are", "waybill doctor -c waybill.yaml"), nil
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var faults []string
	checked := 0
	for name, s := range x.Forwarder.Sinks {
		checker, can := s.Sink.(sinks.HealthChecker)
		if _, absent := s.Sink.(sinks.Absent); !can || absent {
			continue
		}
		checked++
		wg.Go(func() {
			if err := CheckHealth(ctx, checker, x.Timeout*3/4); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, fmt.Sprintf("%s: %s", name, oneLine(err.Error(), 200)))
			}
		})
	}
	wg.Wait()
	slices.Sort(faults)
	if len(faults) > 0 {
		return fail("repair the destination, or the sink's settings: waybill config check", "%s", some(faults)), nil
	}
	return ok("%d of %d have a health check, and would accept a delivery", checked, len(x.Forwarder.Sinks)), nil
}

// CheckHealth opens a sink, checks whether it would accept a delivery now, and closes it. Open
// and check together, and Close, are each limited by timeout. A panic of the sink is returned as
// an error, since the checks may run in a program that delivers.
func CheckHealth(ctx context.Context, sink sinks.HealthChecker, timeout time.Duration) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if opener, ok := sink.(sinks.Opener); ok {
		if err := opener.Open(bounded); err != nil {
			return fmt.Errorf("open: %w", err)
		}
	}
	if closer, ok := sink.(sinks.Closer); ok {
		defer func() {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			_ = closer.Close(closing) // a failure to close does not make the sink unhealthy
		}()
	}
	err = sink.CheckHealth(bounded)
	if err != nil && bounded.Err() != nil {
		return fmt.Errorf("no answer within %s: %w", timeout, err)
	}
	return err
}
