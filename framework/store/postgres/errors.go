package postgres

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/lib/pq"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres/internal/catalog"
)

// Errors of a connection.
var (
	// errSilent ends a connection whose other side is silent. It replaces the network's error,
	// which contains a port that differs each time.
	errSilent = errors.New("the server does not answer")
	// errReadOnly is wrapped if the server reports it with another code than 25006.
	errReadOnly = errors.New("the server takes no writes")
)

// errWithoutTLS explains pq.ErrSSLNotSupported.
var errWithoutTLS = errors.New("without sslmode in the address, TLS is required: add sslmode=disable to the address if nothing else " +
	"can read the connection, such as on this machine, or turn TLS on in the server")

// withAdvice adds what to do to an error of connecting that does not say it.
func withAdvice(err error) error {
	if errors.Is(err, pq.ErrSSLNotSupported) && !errors.Is(err, errWithoutTLS) {
		return fmt.Errorf("%w: %w", err, errWithoutTLS)
	}
	return err
}

// idleSession is the code with which a server ends a session after idle_session_timeout.
const idleSession = "57P05"

// undefinedTable is the code for a missing table.
const undefinedTable = "42P01"

// isReadOnly reports whether a server refused to write, as a standby does, and a primary with
// default_transaction_read_only.
func isReadOnly(err error) bool {
	return errors.Is(err, errReadOnly) || catalog.Refused(err, "25006")
}

// advise adds a hint, by the code, to an error whose text does not say how to fix it.
func advise(err error) error {
	if catalog.Refused(err, hiddenRows) {
		return &store.AdvisedError{Err: store.ErrHidden, Hint: "ALTER ROLE … BYPASSRLS, or let the role own the outbox's tables, or ALTER TABLE … DISABLE ROW LEVEL SECURITY; " +
			"a policy does not help, whatever it lets through; nothing is lost meanwhile"}
	}
	hint := hintFor(err)
	if hint == "" {
		return err
	}
	return &store.AdvisedError{Err: err, Hint: hint}
}

func hintFor(err error) string {
	switch {
	case err == nil:
		return ""
	case isReadOnly(err):
		return "this is a standby, or default_transaction_read_only is on; for a failover name all hosts and " +
			"target_session_attrs=read-write in the database's address: new connections are made until one takes writes"
	case errors.Is(err, errSilent):
		return "the server is stopped or overloaded, or the network on the way swallows what is sent"
	case errors.Is(err, driver.ErrBadConn):
		return "the server ended the connection; its log says why"
	}
	switch catalog.SQLState(err) {
	case "40001", "40P01":
		return "another transaction was in the way; the write is tried again"
	case catalog.DeniedPrivilege:
		return "the role lacks a privilege on the outbox's tables: `waybill migrate --print-grants ROLE --for DUTY` prints those that it needs, such as for the duty forwarder"
	case "53100":
		return "the database's disk is full: free space, or let retention keep less; nothing is lost meanwhile"
	case "53200":
		return "the database server is out of memory"
	case "53300":
		return "the server, the database or the role has no connection left: raise its limit, or put a pooler in front"
	case "55P03":
		return "another session holds a lock for longer than lock_timeout, as ALTER TABLE and VACUUM FULL do"
	case "57014":
		return "statement_timeout of the role or the database is too short, or another session cancelled the statement"
	case "57P01", "57P02", "57P03":
		return "the server is being stopped or started"
	case "58030":
		return "the database server cannot read or write its files; its log says why"
	}
	return ""
}
