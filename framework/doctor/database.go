package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
)

func checkConfiguration(_ context.Context, x *examination) (verdict, error) {
	switch {
	case x.Mistakes != nil:
		return fail("waybill config check", "%s", strings.ReplaceAll(x.Mistakes.Error(), "\n", "; ")), nil
	case x.Forwarder == nil:
		return ok("no configuration was given: the checks assume defaults"), nil
	}
	return ok("%s, %s", count(len(x.Forwarder.Sinks), "sink"), count(len(x.Forwarder.Routes), "route")), nil
}

func checkDatabase(ctx context.Context, x *examination) (verdict, error) {
	fix := "start the database, or repair `database` in the configuration"
	switch advised := new(store.AdvisedError); {
	case errors.Is(x.examineErr, store.ErrNotMigrated):
		fix = "waybill migrate"
	case errors.As(x.examineErr, &advised):
		fix = advised.Hint
	case x.examineErr == nil:
		began := time.Now()
		if err := x.DB.PingContext(ctx); err != nil {
			return verdict{}, err
		}
		return ok("answers within %s", age(time.Since(began))), nil
	}
	return fail(fix, "%v", x.examineErr), nil
}

// schema returns an error if the tables do not have the version of this program.
func (x *examination) schema(ctx context.Context) error {
	switch {
	case x.pg != nil:
		return x.pg.Schema(ctx)
	case x.my != nil:
		return x.my.Schema(ctx)
	}
	return x.lite.Schema(ctx)
}

func checkSchema(ctx context.Context, x *examination) (verdict, error) {
	err := x.schema(ctx)
	switch {
	case errors.Is(err, store.ErrNotMigrated):
		return fail("waybill migrate", "%v", err), nil
	case errors.Is(err, store.ErrNewerSchema):
		return fail("upgrade the program", "%v", err), nil
	case err != nil:
		return verdict{}, err
	}
	return ok("the tables have the version of this program"), nil
}

func checkLog(ctx context.Context, x *examination) (verdict, error) {
	if x.store != nil {
		if err := x.store.Unread(ctx); errors.Is(err, store.ErrUnsafeLog) {
			return unsafe(err), nil
		} else if err != nil {
			return verdict{}, err
		}
	}
	switch {
	case x.lite != nil && x.store == nil:
		return skip("the outbox cannot be opened: see schema", ""), nil
	case x.lite != nil:
		return ok("all rows have offsets that readers find"), nil
	case x.my != nil:
		return checkMySQLLog(ctx, x)
	}
	switch err := x.pg.Offsets(ctx); {
	case errors.Is(err, store.ErrUnsafeLog):
		return unsafe(err), nil
	case x.schema(ctx) != nil:
		return skip("the log does not have this program's version: see schema", ""), nil
	case err != nil:
		return verdict{}, err
	}
	return ok("the database alone numbers the rows, one at a time"), nil
}

// unsafe is the verdict of a store.ErrUnsafeLog, whose text ends with what mends the log.
func unsafe(err error) verdict {
	what, fix, _ := strings.Cut(err.Error(), "to fix it: ")
	return fail(fix, "%s", strings.TrimSuffix(what, "; "))
}

func checkHistory(ctx context.Context, x *examination) (verdict, error) {
	faults, err := x.store.CursorFaults(ctx)
	if err != nil {
		return verdict{}, err
	}
	var texts []string
	for sink, reason := range faults {
		texts = append(texts, sink+": "+reason)
	}
	slices.Sort(texts)
	if len(texts) > 0 {
		return warn("start a forwarder: it reads the log again, and logs what was restored or truncated", "%s", some(texts)), nil
	}
	return ok("the cursors belong to this log"), nil
}

func checkPrimary(ctx context.Context, x *examination) (verdict, error) {
	standby, err := x.pg.InRecovery(ctx)
	if err != nil {
		return verdict{}, err
	}
	settings, err := x.pg.Settings(ctx, "default_transaction_read_only")
	if err != nil {
		return verdict{}, err
	}
	const hosts = "name all hosts and target_session_attrs=read-write in database"
	switch {
	case standby:
		return fail(hosts, "the server is a standby"), nil
	case settings["default_transaction_read_only"] == "on":
		role, err := x.pg.Role(ctx)
		return fail(fmt.Sprintf("ALTER ROLE %s SET default_transaction_read_only = off;", role), "default_transaction_read_only is on"), err
	}
	return ok("the server accepts writes"), nil
}

func checkDurability(ctx context.Context, x *examination) (verdict, error) {
	if x.lite != nil {
		return checkJournal(ctx, x)
	}
	if x.my != nil {
		return checkMySQLDurability(ctx, x)
	}
	settings, err := x.pg.Settings(ctx, "fsync", "full_page_writes", "synchronous_commit")
	if err != nil {
		return verdict{}, err
	}
	var off []string
	fix := ""
	for _, name := range []string{"fsync", "full_page_writes"} {
		if settings[name] == "off" {
			off = append(off, name)
			fix += "ALTER SYSTEM SET " + name + " = on;\n"
		}
	}
	switch {
	case len(off) > 0:
		verb := "is"
		if len(off) > 1 {
			verb = "are"
		}
		return fail(fix+"SELECT pg_reload_conf();", "%s %s off: a crash of the machine may damage the database", strings.Join(off, " and "), verb), nil
	case settings["synchronous_commit"] == "off":
		role, err := x.pg.Role(ctx)
		return warn(fmt.Sprintf("ALTER ROLE %s SET synchronous_commit = on;", role), "synchronous_commit is off for this role: a crash loses the last commits"), err
	}
	return ok("fsync and full_page_writes are on, synchronous_commit is %s", settings["synchronous_commit"]), nil
}

// checkClock assumes that the server read its clock in the middle of the round trip.
func checkClock(ctx context.Context, x *examination) (verdict, error) {
	read := x.pg.Now
	if x.my != nil {
		read = x.my.Now
	}
	before := x.now()
	there, err := read(ctx)
	if err != nil {
		return verdict{}, err
	}
	trip, lease := x.now().Sub(before), x.engine().Lease
	skew := (there.Sub(before) - trip/2).Abs()
	const fix = "synchronize the clocks of both machines with NTP"
	switch {
	case skew-trip/2 >= lease:
		return fail(fix, "this machine's clock and the database's are %s apart, as long as the lease (%s)", age(skew), lease), nil
	case skew-trip/2 >= x.skew:
		return warn(fix, "this machine's clock and the database's are %s apart", age(skew)), nil
	}
	return ok("this machine's clock and the database's are %s apart, give or take %s", age(skew), age(trip/2)), nil
}
