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

// checkMySQLLog runs the check "log" on MySQL and MariaDB.
func checkMySQLLog(ctx context.Context, x *examination) (verdict, error) {
	switch err := x.my.Log(ctx); {
	case errors.Is(err, store.ErrUnsafeLog):
		return unsafe(err), nil
	case err != nil:
		return verdict{}, err
	}
	settings, err := x.variables(ctx, "innodb_autoinc_lock_mode", "log_bin", "binlog_format")
	if err != nil {
		return verdict{}, err
	}
	mode := settings["innodb_autoinc_lock_mode"]
	watches, err := x.my.HasProcess(ctx)
	switch {
	case err != nil:
		return verdict{}, err
	case settings["log_bin"] == "ON" && settings["binlog_format"] == "STATEMENT":
		return fail("SET GLOBAL binlog_format = 'ROW';", "binlog_format is STATEMENT: the server refuses the writes of READ COMMITTED sessions, which a forwarder uses"), nil
	case !watches && x.MySQL.WithoutProcess == mysql.ProofRequired:
		return fail("GRANT PROCESS ON *.* TO the user, or set outbox.without_process: void", "the user lacks the privilege PROCESS: a rolled back offset cannot be distinguished from one that will still commit"), nil
	case mode != "2":
		return warn("set innodb_autoinc_lock_mode = 2 in the server's configuration, and restart the server",
			"innodb_autoinc_lock_mode is %s: while one publisher inserts many rows with one statement, all others wait", mode), nil
	case !watches:
		return ok("the database numbers the rows; without the privilege PROCESS, rolled back offsets get void rows"), nil
	}
	return ok("the database numbers the rows, and the user sees which statements run"), nil
}

func checkMySQLDurability(ctx context.Context, x *examination) (verdict, error) {
	settings, err := x.variables(ctx, "innodb_doublewrite", "innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog")
	double, flush := settings["innodb_doublewrite"], settings["innodb_flush_log_at_trx_commit"]
	switch {
	case err != nil:
		return verdict{}, err
	case strings.EqualFold(double, "OFF"):
		return fail("set innodb_doublewrite = ON in the server's configuration", "innodb_doublewrite is off: a crash of the machine may damage the database"), nil
	case flush != "1" && flush != "3":
		return warn("SET GLOBAL innodb_flush_log_at_trx_commit = 1;", "innodb_flush_log_at_trx_commit is %s: a crash loses commits whose notifications were already delivered", flush), nil
	case settings["log_bin"] == "ON" && settings["sync_binlog"] != "1":
		return warn("SET GLOBAL sync_binlog = 1;", "sync_binlog is %s: a crash of the machine loses the commits that the binary log has not yet synced to disk", settings["sync_binlog"]), nil
	}
	return ok("innodb_doublewrite is %s, innodb_flush_log_at_trx_commit is %s", double, flush), nil
}

// variables reads variables of the server.
func (x *examination) variables(ctx context.Context, names ...string) (values map[string]string, err error) {
	values = make(map[string]string, len(names))
	for _, name := range names {
		if values[name], err = x.my.Variable(ctx, name); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// leastPacket is the max_allowed_packet at which any driver can write a payload of 1 MiB, the default
// limit of a publisher.
const leastPacket = 4 << 20

func checkMySQLPackets(ctx context.Context, x *examination) (verdict, error) {
	packet, ours, anyone, err := x.my.Packet(ctx)
	if err != nil {
		return verdict{}, err
	}
	text := fmt.Sprintf("max_allowed_packet is %s: a notification of up to %s fits, and of up to %s if a driver escapes it", size(int64(packet)), size(int64(ours)), size(int64(anyone)))
	if packet < leastPacket {
		return warn(fmt.Sprintf("SET GLOBAL max_allowed_packet = %d;", 16<<20), "%s", text), nil
	}
	return ok("%s", text), nil
}

func checkMySQLHeld(ctx context.Context, x *examination) (verdict, error) {
	found, err := x.my.Holdings(ctx, x.HeldAfter)
	if err != nil {
		return verdict{}, err
	}
	var texts, fixes []string
	for _, h := range found {
		text := fmt.Sprintf("session %d of %s, %s, for %s", h.Session, h.User, h.State, age(h.Age))
		if h.Statement != "" {
			text += ": " + oneLine(h.Statement, 80)
		}
		texts, fixes = append(texts, text), append(fixes, fmt.Sprintf("KILL %d;", h.Session))
	}
	if len(found) > 0 {
		return warn(strings.Join(fixes, "\n"), "%d open for more than %s: %s", len(found), x.HeldAfter, some(texts)), nil
	}
	return ok("none with writes is open for more than %s", x.HeldAfter), nil
}

func checkMySQLTimeouts(ctx context.Context, x *examination) (verdict, error) {
	lease := x.engine().Lease
	var below, fixes []string
	// Each timeout with its unit. The value 0 means no limit.
	for name, unit := range map[string]time.Duration{"max_execution_time": time.Millisecond, "max_statement_time": time.Second, "wait_timeout": time.Second} {
		text, err := x.my.Variable(ctx, name)
		if err != nil {
			return verdict{}, err
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n == 0 {
			continue // not a variable of this server, or no limit
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
		return warn("raise max_connections (SET GLOBAL), or lower forwarder.connections", "max_connections leaves %d of %d: one more forwarder needs %d", left, most, need), nil
	}
	return ok("max_connections leaves %d of %d; one more forwarder needs %d", left, most, need), nil
}

func checkMySQLPrepared(ctx context.Context, x *examination) (verdict, error) {
	found, err := x.my.Prepared(ctx)
	if mysql.IsDenied(err) {
		return skip("the user lacks a privilege", "GRANT XA_RECOVER_ADMIN ON *.* TO the user;"), nil
	}
	if err != nil {
		return verdict{}, err
	}
	var fixes []string
	for _, name := range found {
		fixes = append(fixes, "XA ROLLBACK "+name+";")
	}
	if len(found) > 0 {
		return warn(strings.Join(fixes, "\n"), "%s prepared: until they end, their offsets stay undecided and the log's table cannot be altered", count(len(found), "XA transaction")), nil
	}
	return ok("none is prepared"), nil
}
