package doctor

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// busyTimeout is how long a writer of SQLite should at least wait for another one.
const busyTimeout = 5 * time.Second

func checkTimeouts(ctx context.Context, x *examination) (verdict, error) {
	if x.lite != nil {
		text, err := x.lite.Pragma(ctx, "busy_timeout")
		if err != nil {
			return verdict{}, err
		}
		wait, err := milliseconds(text)
		if err != nil || wait >= busyTimeout {
			return ok("busy_timeout is %s", wait), err
		}
		return warn("run PRAGMA busy_timeout = 10000 on each connection", "busy_timeout is %s: a writer fails if another one takes longer", wait), nil
	}
	if x.my != nil {
		return checkMySQLTimeouts(ctx, x)
	}
	lease := x.engine().Lease
	timeouts := []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "transaction_timeout"}
	settings, err := x.pg.Settings(ctx, timeouts...)
	if err != nil {
		return verdict{}, err
	}
	role, err := x.pg.Role(ctx)
	if err != nil {
		return verdict{}, err
	}
	var below, fixes []string
	for _, name := range timeouts {
		if settings[name] == "" || settings[name] == "0" {
			continue
		}
		set, err := milliseconds(settings[name])
		if err != nil {
			return verdict{}, fmt.Errorf("%s: %w", name, err)
		}
		if set < lease {
			below = append(below, fmt.Sprintf("%s is %s", name, set))
			fixes = append(fixes, fmt.Sprintf("ALTER ROLE %s SET %s = '%ds';", role, name, int(lease.Seconds())))
		}
	}
	if len(below) > 0 {
		return warn(strings.Join(fixes, "\n"), "%s: below the lease (%s)", strings.Join(below, ", "), lease), nil
	}
	return ok("no timeout of this role is below the lease (%s)", lease), nil
}

func milliseconds(text string) (time.Duration, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * time.Millisecond, err
}

func checkConnections(ctx context.Context, x *examination) (verdict, error) {
	if x.my != nil {
		return checkMySQLConnections(ctx, x)
	}
	rooms, err := x.pg.Rooms(ctx)
	if err != nil {
		return verdict{}, err
	}
	need := x.engine().Connections
	if x.listens() {
		need += 2 // the other one shows that the process is alive
	}
	var full, texts []string
	for _, r := range rooms {
		text := fmt.Sprintf("%s leaves %d of %d", r.Limit, max(0, r.Of-r.Used), r.Of)
		texts = append(texts, text)
		if r.Of-r.Used < need {
			full = append(full, text)
		}
	}
	if len(full) > 0 {
		return warn("raise max_connections or the CONNECTION LIMIT of the role or database, or lower forwarder.connections", "%s: one more forwarder needs %d", strings.Join(full, ", "), need), nil
	}
	return ok("%s; one more forwarder needs %d", strings.Join(texts, ", "), need), nil
}

func checkIDs(ctx context.Context, x *examination) (verdict, error) {
	database, used, err := x.pg.OldestIDs(ctx)
	if err != nil {
		return verdict{}, err
	}
	const all = 1 << 31
	const fix = "end held and prepared transactions, drop unused slots, then run VACUUM (FREEZE)"
	text := fmt.Sprintf("%d of about %d transaction ids are in use in the database %s", used, all, database)
	switch {
	case used >= 2*x.ids:
		return fail(fix, "%s", text), nil
	case used >= x.ids:
		return warn(fix, "%s", text), nil
	}
	return ok("%s", text), nil
}

func checkBloat(ctx context.Context, x *examination) (verdict, error) {
	counts, err := x.pg.Bloat(ctx)
	if err != nil {
		return verdict{}, err
	}
	var bloated, fixes []string
	dead := int64(0)
	for _, b := range counts {
		dead += b.Dead
		if b.Dead >= x.dead && b.Dead > b.Live {
			bloated = append(bloated, fmt.Sprintf("%s has %d dead rows and %d live ones", b.Table, b.Dead, b.Live))
			fixes = append(fixes, "VACUUM (ANALYZE) "+b.Table+";")
		}
	}
	if len(bloated) > 0 {
		return warn(strings.Join(fixes, "\n"), "%s", some(bloated)), nil
	}
	return ok("%d dead rows", dead), nil
}

func checkIndexes(ctx context.Context, x *examination) (verdict, error) {
	if x.schema(ctx) != nil {
		return skip("the tables do not have this program's version: see schema", ""), nil
	}
	var faults, fixes []string
	if x.pg == nil {
		var missing map[string]string
		var err error
		if x.my != nil {
			missing, err = x.my.MissingIndexes(ctx)
		} else {
			missing, err = x.lite.MissingIndexes(ctx)
		}
		if err != nil {
			return verdict{}, err
		}
		for name, fix := range missing {
			faults, fixes = append(faults, name+" is missing"), append(fixes, fix)
		}
	} else {
		found, err := x.pg.IndexFaults(ctx)
		if err != nil {
			return verdict{}, err
		}
		for _, f := range found {
			faults, fixes = append(faults, f.Index+" "+f.Reason), append(fixes, f.Fix)
		}
	}
	slices.Sort(faults)
	slices.Sort(fixes)
	if len(faults) > 0 {
		return warn(strings.Join(fixes, "\n"), "%s", some(faults)), nil
	}
	return ok("all indexes are present and valid"), nil
}
