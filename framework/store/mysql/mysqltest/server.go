// Package mysqltest gives tests and benchmarks a real MySQL or MariaDB.
//
// A test asks for a fresh, empty database:
//
//	dsn := mysqltest.DSN(t)
//
// The server behind it is what the environment variable WAYBILL_TEST_MYSQL says: the
// address of a server, or "mariadb" or "mysql" for a throwaway one of that family. Where
// the variable is not set, it is a throwaway server of whichever family there is:
// MariaDB of the machine, else MySQL 8.0, which is fetched once from Maven Central. Where
// there is none, a test is skipped, unless the variable asks for one.
//
// A throwaway server listens on the loopback interface only, and its user root has no
// password. It is gone when the process that started it is, even when that was killed.
package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Variable is the environment variable that says which server to use: "mariadb", "mysql",
// or an address such as mysql://root@127.0.0.1:3306/, whose user may create databases and
// has all privileges.
const Variable = "WAYBILL_TEST_MYSQL"

// Family is a kind of server.
type Family string

// The families of throwaway servers.
const (
	MariaDB Family = "mariadb"
	MySQL   Family = "mysql"
)

// dropTimeout bounds the removal of a database, which has no caller's context.
const dropTimeout = 30 * time.Second

// Options of a throwaway server. A server that the environment names by its address is used
// as it is, unless Private is set.
type Options struct {
	// Family is what to start; "" takes what the environment says, or what there is.
	Family Family
	// Private asks for a server of one's own even where the environment names an address:
	// for tests that stop the server or change its settings.
	Private bool
	// Durable has each commit wait for the disk, as in production.
	Durable bool
	// Dir is the folder in which the server's temporary folder is made; "" is the system's.
	Dir string
	// Settings are further settings of mysqld, such as innodb_autoinc_lock_mode.
	Settings map[string]string
}

// Server is a running MySQL or MariaDB. It is safe for concurrent use, except that nothing
// may run beside Kill, Shutdown, Up and Stop.
type Server struct {
	config  *mysql.Config // without a database
	process *process      // nil for a server that Start only found
}

// Start finds or starts a server and returns once it takes connections. A throwaway server
// takes some seconds to be made. ctx bounds the start, not the server's life.
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
	return &Server{config: process.config(), process: process}, nil
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

// Stop ends a throwaway server and removes its files; it does nothing to any other.
func (s *Server) Stop() error {
	if s.process == nil {
		return nil
	}
	return s.process.release()
}

// Kill ends the server at once, as a crash does: SIGKILL. Its files stay.
func (s *Server) Kill() error { return s.control("kill") }

// Shutdown ends the server in order. Its files stay.
func (s *Server) Shutdown() error { return s.control("stop") }

func (s *Server) control(command string) error {
	if s.process == nil {
		return ErrNotOurs
	}
	return s.process.tell(command)
}

// Up starts a server again that was stopped, at the same address, and returns once it takes
// connections.
func (s *Server) Up(ctx context.Context) error {
	if s.process == nil {
		return ErrNotOurs
	}
	return s.process.start(ctx)
}

// DSN is the server's address as the driver takes it, with a database or without: "".
func (s *Server) DSN(database string) string {
	config := s.config.Clone()
	config.DBName = database
	return config.FormatDSN()
}

// URL is the same as Waybill's configuration takes it.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "mysql", User: url.User(s.config.User), Host: s.config.Addr, Path: "/" + database}
	if s.config.Passwd != "" {
		u.User = url.UserPassword(s.config.User, s.config.Passwd)
	}
	return u.String()
}

// CreateDatabase makes an empty database and returns its name. drop removes it; without a
// call it goes with the server, but stays on one that Start only found.
func (s *Server) CreateDatabase(ctx context.Context) (name string, drop func() error, err error) {
	name = "waybill_" + strings.ToLower(rand.Text())
	if err := s.Execute(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"); err != nil {
		return "", nil, fmt.Errorf("mysqltest: create a database: %w", err)
	}
	return name, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), dropTimeout)
		defer cancel()
		if err := s.Execute(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
			return fmt.Errorf("mysqltest: drop a database: %w", err)
		}
		return nil
	}, nil
}

// Execute runs a statement as root, outside of any database. No connection is kept: an idle
// server has no goroutine of this package in the process.
func (s *Server) Execute(ctx context.Context, statement string) error {
	db, err := sql.Open("mysql", s.DSN(""))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}
