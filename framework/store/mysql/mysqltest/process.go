package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

func launch(ctx context.Context, b binaries, options Options) (*testserver.Process, error) {
	return testserver.Launch(ctx, testserver.Spec{
		Name:    "mysql",
		Dir:     options.Dir,
		Command: func(folder string) []string { return append([]string{b.server}, b.settings(folder, options)...) },
		Signal:  "KILL",
		Fill:    func(ctx context.Context, p *testserver.Process) error { return b.initialize(ctx, p, options) },
		Ping: func(ctx context.Context, port int) error {
			db, err := sql.Open("mysql", rootAt(port).FormatDSN())
			if err != nil {
				return err
			}
			return errors.Join(db.PingContext(ctx), db.Close())
		},
	})
}

// rootAt returns the address of a temporary server.
func rootAt(port int) *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", testserver.Loopback(port)
	return config
}

// baseSettings has the settings that a server needs before it has data, and which that data keeps.
func (b binaries) baseSettings(folder string, options Options) []string {
	settings := []string{"--no-defaults", "--datadir=" + filepath.Join(folder, "data")}
	for _, name := range []string{"innodb_page_size", "lower_case_table_names"} {
		if value := options.Settings[name]; value != "" {
			settings = append(settings, "--"+name+"="+value)
		}
	}
	if b.base != "" {
		settings = append(settings, "--basedir="+b.base, "--lc-messages-dir="+filepath.Join(b.base, "share"))
	}
	return settings
}

func (b binaries) settings(folder string, options Options) []string {
	settings := map[string]string{
		"bind-address":             "127.0.0.1",
		"socket":                   filepath.Join(folder, "s"),
		"pid-file":                 filepath.Join(folder, "pid"),
		"tmpdir":                   filepath.Join(folder, "tmp"), // a starting server removes temporary tables in it
		"max_connections":          "300",
		"innodb_buffer_pool_size":  "512M",
		"innodb_autoinc_lock_mode": "2",
		"max_allowed_packet":       "256M",
		"local_infile":             "ON",
		"skip-log-bin":             "",
		"innodb_log_file_size":     "256M",
	}
	if _, asked := options.Settings["log-bin"]; asked {
		delete(settings, "skip-log-bin")
	}
	if !options.Durable {
		settings["innodb_flush_log_at_trx_commit"] = "0"
		settings["innodb_doublewrite"] = "OFF"
	}
	if b.family == MySQL {
		settings["mysqlx"] = "OFF"
		settings["default_authentication_plugin"] = "mysql_native_password"
	}
	maps.Copy(settings, options.Settings)
	args := b.baseSettings(folder, options)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		arg := "--" + name
		if settings[name] != "" {
			arg += "=" + settings[name]
		}
		args = append(args, arg)
	}
	return args
}

// initialize makes the data, with a user root without a password.
func (b binaries) initialize(ctx context.Context, p *testserver.Process, options Options) error {
	name, args := b.server, append(b.baseSettings(p.Folder, options), "--initialize-insecure")
	if b.install != "" {
		name, args = b.install, append(b.baseSettings(p.Folder, options), "--auth-root-authentication-method=normal", "--skip-test-db")
	}
	if err := os.Mkdir(p.Path("tmp"), 0o777); err != nil {
		return err
	}
	if err := os.Chmod(p.Path("tmp"), 0o777); err != nil {
		return err
	}
	command := p.Command(ctx, name, args...)
	command.Env = append(command.Env, "TMPDIR="+p.Path("tmp")) // two simultaneous installations in one folder would remove each other's tables
	return testserver.Run(command)
}
