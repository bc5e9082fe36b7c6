// Package mysqltest starts a real MySQL or MariaDB for tests and benchmarks.
//
// A test asks for a fresh, empty database:
//
//	dsn := mysqltest.DSN(t)
//
// The environment variable WAYBILL_TEST_MYSQL selects the server: its address, or "mariadb" or "mysql" for
// a temporary server of that family. Without the variable, it is a temporary server: MariaDB if it is
// installed, otherwise MySQL 8.0, which is downloaded once from Maven Central. If no server is available,
// the test is skipped, or fails if the variable is set.
//
// A temporary server listens only on the loopback interface, and its user root has no password. It ends
// with the process that started it, even if that is killed.
package mysqltest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/internal/testserver"
)

// Variable is the environment variable that selects the server: "mariadb", "mysql", or an address such as
// mysql://root@127.0.0.1:3306/. The user of an address needs all privileges.
const Variable = "WAYBILL_TEST_MYSQL"

// ErrNoServer is wrapped if there is neither a server nor binaries to start one. The text explains how
// to get one.
var ErrNoServer = errors.New("no MySQL or MariaDB to test with")

// Kill, Shutdown and Up return ErrNotOurs for a server that Start has not started.
var ErrNotOurs = errors.New("cannot control the server of " + Variable + ", because Start has not started it")

// Family is a kind of server.
type Family string

// The families of temporary servers.
const (
	MariaDB Family = "mariadb"
	MySQL   Family = "mysql"
)

// Options configures a temporary server. If the environment has the address of a server, that server is
// used unchanged, unless Private is set.
type Options struct {
	// Family is the family to start; "" means the family of the environment, or an available one.
	Family Family
	// Private starts a separate server even if the environment has an address, for tests that stop the
	// server or change its settings.
	Private bool
	// Durable makes commits wait for the disk, as in production.
	Durable bool
	// Dir is the parent of the server's temporary folder; "" means the system's folder.
	Dir string
	// Settings has further settings of mysqld, such as innodb_autoinc_lock_mode.
	Settings map[string]string
}

// Server is a running MySQL or MariaDB. It is safe for concurrent use, except Kill, Shutdown, Up and Stop.
type Server struct {
	config  *mysql.Config       // without a database
	process *testserver.Process // nil for a server that Start has not started
}

// Start finds or starts a server, and returns once it accepts connections. Starting a temporary server
// takes some seconds. ctx applies to the start only.
func Start(ctx context.Context, options Options) (*Server, error) {
	server, err := start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("mysqltest: %w", err)
	}
	return server, nil
}

func start(ctx context.Context, options Options) (*Server, error) {
	named := os.Getenv(Variable)
	switch {
	case options.Family == "" && (named == string(MariaDB) || named == string(MySQL)):
		options.Family = Family(named)
	case named != "" && !options.Private && strings.Contains(named, "://"):
		config, err := parseAddress(named)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Variable, err)
		}
		return &Server{config: config}, nil
	}
	binaries, err := find(ctx, options.Family)
	if err != nil {
		return nil, err
	}
	process, err := launch(ctx, binaries, options)
	if err != nil {
		return nil, err
	}
	return &Server{config: rootAt(process.Port), process: process}, nil
}

func parseAddress(address string) (*mysql.Config, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("is not a URL")
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = u.User.Username(), "tcp", u.Host
	config.Passwd, _ = u.User.Password()
	return config, nil
}

// Stop stops a temporary server and removes its files. It does nothing to other servers.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	return s.process.Release()
}

// Kill ends the server at once with SIGKILL, like a crash. Its files stay.
func (s *Server) Kill() error { return s.control("KILL") }

// Shutdown stops the server gracefully. Its files stay.
func (s *Server) Shutdown() error { return s.control("TERM") }

func (s *Server) control(signal string) error {
	if s.process == nil {
		return ErrNotOurs
	}
	return s.process.Stop(signal)
}

// Up starts a stopped server again at the same address, and returns when it accepts connections.
func (s *Server) Up(ctx context.Context) error {
	if s.process == nil {
		return ErrNotOurs
	}
	return s.process.Start(ctx)
}

// DSN returns the server's address in the form of the driver, with a database unless it is "".
func (s *Server) DSN(database string) string {
	config := s.config.Clone()
	config.DBName = database
	return config.FormatDSN()
}

// URL returns the address in the form of Waybill's configuration.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "mysql", User: url.User(s.config.User), Host: s.config.Addr, Path: "/" + database}
	if s.config.Passwd != "" {
		u.User = url.UserPassword(s.config.User, s.config.Passwd)
	}
	return u.String()
}

// CreateDatabase creates an empty database and returns its name. drop removes it. Otherwise it is removed
// with a temporary server, and stays on other servers.
func (s *Server) CreateDatabase(ctx context.Context) (name string, drop func() error, err error) {
	name = testserver.DatabaseName()
	if err := s.Execute(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"); err != nil {
		return "", nil, fmt.Errorf("mysqltest: create a database: %w", err)
	}
	return name, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), testserver.DropTimeout)
		defer cancel()
		if err := s.Execute(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
			return fmt.Errorf("mysqltest: drop a database: %w", err)
		}
		return nil
	}, nil
}

// Execute runs a statement as root, without a database. It keeps no connection, so an idle server has no
// goroutine in this process.
func (s *Server) Execute(ctx context.Context, statement string) error {
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
