package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
	"github.com/shirou/gopsutil/v4/disk"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// The limits above which the bench warns: the share of the processors that others use, and the share
// of time that the hypervisor takes away.
const (
	maxBusy   = 0.15
	maxStolen = 0.02
)

// inspectEnvironment records the environment and warns of what makes figures unreliable.
func (b *bench) inspectEnvironment(ctx context.Context, r *result.Result) error {
	b.progress.Begin("inspect", 1)
	defer b.progress.End()
	b.progress.Step("the machine and the database")
	r.Machine = b.inspectMachine(ctx, r)
	warnOfBuild(r)
	leftovers, err := b.database.leftovers(ctx)
	if err != nil {
		return fmt.Errorf("search for tables of other benches: %w", err)
	}
	for _, left := range leftovers {
		r.Warn("there are tables %s…: another bench is running, or one was killed; in that case, drop them", left)
	}
	switch {
	case b.database.postgres:
		r.Server, err = b.inspectPostgres(ctx, r)
	case b.database.mysql:
		r.Server, err = b.inspectMySQL(ctx, r)
	default:
		r.Server, err = b.inspectSQLite(ctx, r)
	}
	if err != nil {
		return fmt.Errorf("inspect the database: %w", err)
	}
	r.Server.RoundTripMS, err = b.roundTrip(ctx)
	return err
}

// inspectMachine records what the system reports.
func (b *bench) inspectMachine(ctx context.Context, r *result.Result) result.Machine {
	m := result.InspectMachine(ctx)
	var stolen float64
	m.Busy, stolen = busy(ctx, b.watchFor)
	warnOfMachine(r, m, stolen)
	return m
}

func warnOfMachine(r *result.Result, m result.Machine, stolen float64) {
	if m.Busy > maxBusy {
		r.Warn("the machine is busy: other processes use %.0f %% of its processors; wait, or stop them", 100*m.Busy)
	}
	if stolen > maxStolen {
		r.Warn("the host of this virtual machine is busy: it took away %.0f %% of the processors' time", 100*stolen)
	}
	if m.Processors == 1 {
		r.Warn("the program may use only one processor, which publishers, forwarder and receivers share")
	}
}

// busy measures the shares of the processors' time that were in use, and that the hypervisor took
// away, while this program does nothing.
func busy(ctx context.Context, d time.Duration) (used, stolen float64) {
	before, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(before) == 0 || !sleep(ctx, d) {
		return 0, 0
	}
	after, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(after) == 0 {
		return 0, 0
	}
	idle := after[0].Idle + after[0].Iowait - before[0].Idle - before[0].Iowait
	taken := after[0].Steal - before[0].Steal
	used = after[0].User + after[0].System + after[0].Nice + after[0].Irq + after[0].Softirq -
		(before[0].User + before[0].System + before[0].Nice + before[0].Irq + before[0].Softirq)
	all := used + idle + taken
	if all <= 0 {
		return 0, 0
	}
	return min(used/all, 1), min(taken/all, 1) // the system's figures are rounded
}

// warnOfBuild warns if the program was built with options that make it slow.
func warnOfBuild(r *result.Result) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "-race" && s.Value == "true":
			r.Warn("the program was built with the race detector, which makes it several times slower")
		case s.Key == "-gcflags" && strings.Contains(s.Value, "-N"):
			r.Warn("the program was built without optimization (-gcflags %s)", s.Value)
		}
	}
	if trace := os.Getenv("GODEBUG"); trace != "" {
		r.Warn("GODEBUG is set (%s): debugging may cost time", trace)
	}
}

// expectation is the value that a setting should have, and why.
type expectation struct{ setting, value, why string }

// postgresExpectations has settings that make figures better or worse than in production.
var postgresExpectations = []expectation{
	{"fsync", "on", "commits do not wait for the disk: publishing looks faster than it is, and a crash loses data"},
	{"synchronous_commit", "on", "commits do not wait for the disk: publishing looks faster than it is, and a crash loses what was committed last"},
	{"full_page_writes", "on", "less is written than in production, and a crash can corrupt data"},
	{"autovacuum", "on", "dead rows stay where they are"},
	{"debug_assertions", "off", "the server was built for debugging, which makes it slower"},
	{"debug_print_parse", "off", "the server writes debugging output for each statement"},
	{"debug_print_rewritten", "off", "the server writes debugging output for each statement"},
	{"debug_print_plan", "off", "the server writes debugging output for each statement"},
	{"log_statement", "none", "the server logs statements"},
	{"log_min_duration_statement", "-1", "the server logs statements with their times"},
	{"log_duration", "off", "the server logs the time of each statement"},
	{"log_statement_stats", "off", "the server writes statistics for each statement"},
}

// postgresNotes has settings that describe the server in the result.
var postgresNotes = []string{"shared_buffers", "max_wal_size", "wal_level", "max_connections", "effective_cache_size", "commit_delay"}

// synchronous values of synchronous_commit that wait for this server's own disk.
var synchronous = []string{"on", "remote_apply", "remote_write", "local"}

func (b *bench) inspectPostgres(ctx context.Context, r *result.Result) (result.Server, error) {
	s := result.Server{Kind: "PostgreSQL", Settings: make(map[string]string)}
	if err := b.database.scan(ctx, &s.Version, `SELECT current_setting('server_version')`); err != nil {
		return s, err
	}
	err := b.readSettings(ctx, s.Settings, `SELECT name, current_setting(name) FROM pg_settings`, "name", postgresNotes, postgresExpectations)
	warnOfSettings(r, s.Settings, postgresExpectations)
	return s, err
}

// readSettings reads the settings that describe a server, and those that are expected to have a value. query
// returns the names and values of all.
func (b *bench) readSettings(ctx context.Context, settings map[string]string, query, name string, notes []string, expected []expectation) error {
	names := slices.Clone(notes)
	for _, e := range expected {
		names = append(names, e.setting)
	}
	rows, err := b.database.DB.QueryContext(ctx, query+` WHERE `+name+` IN ('`+strings.Join(names, `', '`)+`')`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return err
		}
		settings[name] = value
	}
	return rows.Err()
}

// mysqlExpectations is the same for MySQL and MariaDB.
var mysqlExpectations = []expectation{
	{"innodb_flush_log_at_trx_commit", "1", "commits do not wait for the disk: publishing looks faster than it is, and a crash loses what was committed last"},
	{"innodb_doublewrite", "ON", "less is written than in production, and a crash can corrupt data"},
	{"innodb_autoinc_lock_mode", "2", "a statement of many rows holds up all other publishers"},
	{"general_log", "OFF", "the server logs statements"},
}

// mysqlNotes has settings that describe the server in the result.
var mysqlNotes = []string{"innodb_buffer_pool_size", "innodb_log_file_size", "max_connections", "log_bin", "sync_binlog"}

func (b *bench) inspectMySQL(ctx context.Context, r *result.Result) (result.Server, error) {
	s := result.Server{Kind: "MySQL", Settings: make(map[string]string)}
	if err := b.database.scan(ctx, &s.Version, `SELECT VERSION()`); err != nil {
		return s, err
	}
	if strings.Contains(s.Version, "MariaDB") {
		s.Kind = "MariaDB"
	}
	err := b.readSettings(ctx, s.Settings, `SHOW GLOBAL VARIABLES`, "Variable_name", mysqlNotes, mysqlExpectations)
	warnOfSettings(r, s.Settings, mysqlExpectations)
	return s, err
}

func warnOfSettings(r *result.Result, settings map[string]string, expected []expectation) {
	for _, e := range expected {
		value, some := settings[e.setting]
		if !some || value == e.value || e.setting == "synchronous_commit" && slices.Contains(synchronous, value) {
			continue
		}
		r.Warn("%s is %s: %s", e.setting, value, e.why)
	}
}

func (b *bench) inspectSQLite(ctx context.Context, r *result.Result) (result.Server, error) {
	s := result.Server{Kind: "SQLite", Settings: make(map[string]string)}
	if err := b.database.scan(ctx, &s.Version, `SELECT sqlite_version()`); err != nil {
		return s, err
	}
	for _, setting := range []string{"journal_mode", "synchronous"} {
		var value string
		if err := b.database.scan(ctx, &value, `PRAGMA `+setting); err != nil {
			return s, err
		}
		s.Settings[setting] = value
	}
	var file string
	if err := b.database.scan(ctx, &file, `SELECT file FROM pragma_database_list WHERE name = 'main'`); err != nil {
		return s, err
	}
	if folder := filepath.Dir(file); inMemory(ctx, folder) {
		r.Warn("%s is in memory: commits do not wait for a disk, so publishing looks faster than it is; set TMPDIR, or name a database on a disk", folder)
	}
	return s, nil
}

// inMemory reports whether a folder is known to be in memory.
func inMemory(ctx context.Context, folder string) bool {
	usage, err := disk.UsageWithContext(ctx, folder)
	return err == nil && (usage.Fstype == "tmpfs" || usage.Fstype == "ramfs")
}

// roundTrip returns the median duration of some empty statements, in milliseconds.
func (b *bench) roundTrip(ctx context.Context) (float64, error) {
	var times []time.Duration
	for range 21 {
		began := time.Now()
		var one int
		if err := b.database.scan(ctx, &one, `SELECT 1`); err != nil {
			return 0, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return milliseconds(times[len(times)/2]), nil
}
