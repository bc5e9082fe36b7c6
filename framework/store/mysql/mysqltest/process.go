package mysqltest

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/store/internal/testserver"
)

// supervise runs the server as a child process, and executes commands from its input, one word per line.
// When its input ends, because the process that started it has ended or died, it kills the server and
// removes the folder. By then it may have lost the reader of its output.
const supervise = `
trap '' PIPE INT TERM
folder=$1
shift
pid=
while read -r word; do
	case $word in
	start)
		# a start that timed out may still run
		[ -z "$pid" ] || { kill -9 "$pid"; wait "$pid"; } 2>/dev/null
		"$@" --port="$(cat "$folder/port")" >>"$folder/log" 2>&1 </dev/null &
		pid=$!
		;;
	stop) kill "$pid" 2>/dev/null; wait "$pid" ;;
	kill) kill -9 "$pid" 2>/dev/null; wait "$pid" 2>/dev/null ;;
	alive) kill -0 "$pid" 2>/dev/null || { echo no; continue; } ;;
	esac
	echo yes
done
[ -z "$pid" ] || { kill -9 "$pid"; wait "$pid"; } 2>/dev/null
cd / && rm -rf "$folder" 2>/dev/null
exit 0
`

// process is a server with its data in a temporary folder.
type process struct {
	binaries binaries
	folder   string
	port     int
	account  testserver.Account

	shell    *exec.Cmd
	commands io.WriteCloser
	answers  *bufio.Reader
}

func launch(ctx context.Context, b binaries, options Options) (p *process, err error) {
	account, err := testserver.AccountFor("mysql")
	if err != nil {
		return nil, err
	}
	folder, err := account.MakeFolder(options.Dir, "waybill-mysql-*")
	if err != nil {
		return nil, err
	}
	p = &process{binaries: b, folder: folder, account: account}
	if err := p.supervise(options); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := p.install(ctx, options); err != nil {
		return nil, errors.Join(err, p.release())
	}
	for range testserver.StartTries {
		if p.port, err = testserver.FreePort(); err != nil {
			break
		}
		if err = p.start(ctx); err == nil {
			return p, nil
		}
	}
	return nil, errors.Join(err, p.release())
}

func (p *process) path(name string) string { return filepath.Join(p.folder, name) }

func (p *process) config() *mysql.Config {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "tcp", testserver.Loopback(p.port)
	return config
}

// supervise starts the shell that starts and stops the server.
func (p *process) supervise(options Options) error {
	args := append([]string{"-c", supervise, "sh", p.folder, p.binaries.server}, p.settings(options)...)
	p.shell = exec.Command("/bin/sh", args...)
	p.shell.Dir = p.folder
	p.shell.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	p.shell.SysProcAttr = p.account.Attributes()
	commands, err := p.shell.StdinPipe()
	if err != nil {
		return err
	}
	answers, err := p.shell.StdoutPipe()
	if err != nil {
		return err
	}
	p.commands, p.answers = commands, bufio.NewReader(answers)
	return p.shell.Start()
}

// base has the settings that a server needs before it has data, and which that data keeps.
func (p *process) base(options Options) []string {
	settings := []string{"--no-defaults", "--datadir=" + p.path("data")}
	if size := options.Settings["innodb_page_size"]; size != "" {
		settings = append(settings, "--innodb_page_size="+size)
	}
	if p.binaries.base != "" {
		settings = append(settings, "--basedir="+p.binaries.base, "--lc-messages-dir="+filepath.Join(p.binaries.base, "share"))
	}
	return settings
}

func (p *process) settings(options Options) []string {
	settings := map[string]string{
		"bind-address":             "127.0.0.1",
		"socket":                   p.path("s"),
		"pid-file":                 p.path("pid"),
		"tmpdir":                   p.path("tmp"), // a starting server removes temporary tables in it
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
	if p.binaries.family == MySQL {
		settings["mysqlx"] = "OFF"
		settings["default_authentication_plugin"] = "mysql_native_password"
	}
	maps.Copy(settings, options.Settings)
	args := p.base(options)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		arg := "--" + name
		if settings[name] != "" {
			arg += "=" + settings[name]
		}
		args = append(args, arg)
	}
	return args
}

// install initializes the data, with a user root without a password.
func (p *process) install(ctx context.Context, options Options) error {
	name, args := p.binaries.server, append(p.base(options), "--initialize-insecure")
	if p.binaries.install != "" {
		name, args = p.binaries.install, append(p.base(options), "--auth-root-authentication-method=normal", "--skip-test-db")
	}
	command := exec.CommandContext(ctx, name, args...)
	command.Dir, command.SysProcAttr = p.folder, p.account.Attributes()
	command.Env = append(slices.Clip(p.shell.Env), "TMPDIR="+p.path("tmp")) // two simultaneous installations in one folder would remove each other's tables
	if err := os.Mkdir(p.path("tmp"), 0o777); err != nil {
		return err
	}
	if err := os.Chmod(p.path("tmp"), 0o777); err != nil {
		return err
	}
	output, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, bytes.TrimSpace(output[max(0, len(output)-2048):]))
	}
	return nil
}

// start starts the server and waits until it answers.
func (p *process) start(ctx context.Context) error {
	if err := os.WriteFile(p.path("port"), []byte(strconv.Itoa(p.port)), 0o644); err != nil {
		return err
	}
	if err := p.command("start"); err != nil {
		return err
	}
	db, err := sql.Open("mysql", p.config().FormatDSN())
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	for {
		err := db.PingContext(ctx)
		var refused *mysql.MySQLError
		if err == nil {
			return nil
		}
		if errors.As(err, &refused) {
			return p.withLog(err)
		}
		if dead := p.command("alive"); dead != nil || ctx.Err() != nil {
			return p.withLog(errors.Join(err, dead))
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) withLog(err error) error { return testserver.WithLog(err, p.path("log")) }

// command sends one word to the shell and waits until the command is done.
func (p *process) command(word string) error {
	if _, err := fmt.Fprintln(p.commands, word); err != nil {
		return err
	}
	answer, err := p.answers.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the shell of the server has ended: %w", err)
	}
	if strings.TrimSpace(answer) != "yes" {
		return errors.New("the server has ended")
	}
	return nil
}

// release ends the server and removes everything before it returns.
func (p *process) release() error {
	closed := p.commands.Close()
	return errors.Join(closed, p.shell.Wait(), os.RemoveAll(p.folder))
}
