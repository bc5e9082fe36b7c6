package mysql

import (
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/store"
)

// The numbers of errors. MySQL and MariaDB share them unless a comment says otherwise.
const (
	tooManyConnections   = 1040
	accessDenied         = 1044
	badPassword          = 1045
	unknownDatabase      = 1049
	shuttingDown         = 1053
	duplicate            = 1062
	unknownTable         = 1109
	noSuchTable          = 1146
	deniedTable          = 1142
	deniedColumn         = 1143
	packetTooLarge       = 1153
	unknownVariable      = 1193
	lockWait             = 1205
	deadlock             = 1213
	needsPrivilege       = 1227
	optionPreventsWrites = 1290
	noSavepoint          = 1305
	killed               = 1317
	tookTooLong          = 3024 // MySQL, max_execution_time
	tookTooLongMariaDB   = 1969 // max_statement_time
	readOnlyTransaction  = 1792
	diskFull             = 1021
	tableFull            = 1114
	recordChanged        = 1020 // MariaDB, with innodb_snapshot_isolation
)

// refused reports whether the server refused a statement with one of the numbers.
func refused(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// advise adds a hint to an error with a known number.
func advise(err error) error {
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
	case refused(err, deadlock, recordChanged):
		return "another transaction was in the way; the write is tried again"
	case refused(err, lockWait):
		return "another transaction holds a lock for longer than innodb_lock_wait_timeout or lock_wait_timeout: SHOW FULL PROCESSLIST shows it"
	case refused(err, optionPreventsWrites, readOnlyTransaction):
		return "this is a replica, or read_only is on: name the primary in the database's address"
	case refused(err, accessDenied, deniedTable, deniedColumn):
		return "the user lacks a privilege on the outbox's tables: `waybill migrate --print-grants USER` prints those that it needs"
	case refused(err, tooManyConnections):
		return "the server has no connection left: raise max_connections, or use fewer"
	case refused(err, packetTooLarge), errors.Is(err, mysql.ErrPktTooLarge):
		return "a notification does not fit into max_allowed_packet: raise it on the server; `waybill doctor --only packet-size` says what fits"
	case refused(err, diskFull, tableFull):
		return "the database's disk is full: free space, or let retention keep less; nothing is lost meanwhile"
	case refused(err, shuttingDown):
		return "the server is being stopped"
	case refused(err, killed):
		return "another session killed the statement"
	case refused(err, tookTooLong, tookTooLongMariaDB):
		return "the statement took longer than max_execution_time or max_statement_time: raise it for this user, or set it to 0"
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn):
		return "the server ended the connection; its log says why"
	}
	return ""
}

// IsPassing reports whether an error of opening an outbox may be temporary: the server is shutting down
// or has no free connection, or the connection was lost. Errors of the network are not included.
func IsPassing(err error) bool {
	return refused(err, tooManyConnections, shuttingDown) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
}

// IsRefused reports whether an error is an answer of the server, and not an error of the connection.
func IsRefused(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e)
}

// IsDenied reports whether the server refused a statement because a privilege is missing.
func IsDenied(err error) bool {
	return refused(err, accessDenied, deniedTable, deniedColumn, needsPrivilege)
}
