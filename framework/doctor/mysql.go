package doctor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
)

// checkMySQLLog is the check log on MySQL and MariaDB.
func checkMySQLLog(ctx context.Context, x *examination) (verdict, error) {
	switch err := x.my.Log(ctx); {
	case errors.Is(err, store.ErrUnsafeLog):
		what, fix, _ := strings.Cut(err.Error(), "to fix it: ")
		return fail(fix, "%s", strings.TrimSuffix(what, "; ")), nil
	case err != nil:
		return verdict{}, err
	}
	mode, err := x.my.Variable(ctx, "innodb_autoinc_lock_mode")
	if err != nil {
		return verdict{}, err
	}
	watches, err := x.my.HasProcess(ctx)
	switch {
	case err != nil:
		return verdict{}, err
	case !watches && x.MySQL.WithoutProcess == mysql.ProofRequired:
		return fail("GRANT PROCESS ON *.* TO the user, or choose outbox.without_process", "the user lacks the privilege PROCESS: what was rolled back cannot be told from what is to come"), nil
	case !watches && x.MySQL.WithoutProcess == mysql.ProofGrace:
		return warn("GRANT PROCESS ON *.* TO the user, or outbox.without_process: void", "without the privilege PROCESS, a statement that publishes for longer than outbox.grace loses its rows"), nil
	case mode != "2":
		return warn("innodb_autoinc_lock_mode = 2 in the server's configuration, and restart it",
			"innodb_autoinc_lock_mode is %s: a publisher that writes many rows with one statement holds up all others", mode), nil
	case !watches:
		return ok("the log numbers its rows; without the privilege PROCESS, rolled back offsets get void rows"), nil
	}
	return ok("the log numbers its rows, and the user sees which statements run"), nil
}

func checkMySQLDurability(ctx context.Context, x *examination) (verdict, error) {
	flush, err := x.my.Variable(ctx, "innodb_flush_log_at_trx_commit")
	if err != nil {
		return verdict{}, err
	}
	double, err := x.my.Variable(ctx, "innodb_doublewrite")
	switch {
	case err != nil:
		return verdict{}, err
	case strings.EqualFold(double, "OFF"):
		return fail("innodb_doublewrite = ON in the server's configuration", "innodb_doublewrite is off: a crash of the machine may damage the database"), nil
	case flush != "1" && flush != "3":
		return warn("SET GLOBAL innodb_flush_log_at_trx_commit = 1;", "innodb_flush_log_at_trx_commit is %s: a crash takes back commits whose notifications were delivered", flush), nil
	}
	return ok("innodb_doublewrite is %s, innodb_flush_log_at_trx_commit is %s", double, flush), nil
}

func checkMySQLTimeouts(ctx context.Context, x *examination) (verdict, error) {
	lease := x.engine().Lease
	var below, fixes []string
	// The unit of each; 0 is no bound.
	for name, unit := range map[string]time.Duration{"max_execution_time": time.Millisecond, "max_statement_time": time.Second, "wait_timeout": time.Second} {
		text, err := x.my.Variable(ctx, name)
		if err != nil {
			return verdict{}, err
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n == 0 {
			continue // this family has none of the name
		}
		if set := time.Duration(n * float64(unit)); set < lease {
			below = append(below, fmt.Sprintf("%s is %s", name, set))
			fixes = append(fixes, fmt.Sprintf("SET GLOBAL %s = %d;", name, lease/unit))
		}
	}
	if len(below) > 0 {
		return warn(strings.Join(fixes, "\n"), "%s: below the lease (%s)", strings.Join(below, ", "), lease), nil
	}
	return ok("none is below the lease (%s)", lease), nil
}

func checkMySQLConnections(ctx context.Context, x *examination) (verdict, error) {
	used, most, err := x.my.Connections(ctx)
	if err != nil {
		return verdict{}, err
	}
	need, left := x.engine().Connections, max(0, most-used)
	if left < need {
		return warn("SET GLOBAL max_connections, or forwarder.connections", "max_connections leaves %d of %d: one more forwarder needs %d", left, most, need), nil
	}
	return ok("max_connections leaves %d of %d; one more forwarder needs %d", left, most, need), nil
}

func checkMySQLPrepared(ctx context.Context, x *examination) (verdict, error) {
	found, err := x.my.Prepared(ctx)
	if mysql.IsDenied(err) {
		return skip("the user may not look", "GRANT XA_RECOVER_ADMIN ON *.* TO the user;"), nil
	}
	if err != nil {
		return verdict{}, err
	}
	var fixes []string
	for _, name := range found {
		fixes = append(fixes, "XA ROLLBACK "+name+";")
	}
	if len(found) > 0 {
		return warn(strings.Join(fixes, "\n"), "%s prepared, which keep their offsets open and the log's table from being altered until a person ends them, if no program does", count(len(found), "XA transaction")), nil
	}
	return ok("none is prepared"), nil
}
