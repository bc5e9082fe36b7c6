package session

import (
	"database/sql/driver"
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/store"
)

// The numbers of errors. MySQL and MariaDB share them unless a comment says otherwise.
const (
	TooManyConnections   = 1040
	AccessDenied         = 1044
	badPassword          = 1045
	unknownDatabase      = 1049
	ShuttingDown         = 1053
	Duplicate            = 1062
	unknownTable         = 1109
	NoSuchTable          = 1146
	DeniedTable          = 1142
	DeniedColumn         = 1143
	packetTooLarge       = 1153
	unknownVariable      = 1193
	LockWait             = 1205
	Deadlock             = 1213
	NeedsPrivilege       = 1227
	optionPreventsWrites = 1290
	noSavepoint          = 1305
	killed               = 1317
	tookTooLong          = 3024 // MySQL, max_execution_time
	tookTooLongMariaDB   = 1969 // max_statement_time
	readOnlyTransaction  = 1792
	diskFull             = 1021
	tableFull            = 1114
	RecordChanged        = 1020 // MariaDB, with innodb_snapshot_isolation
)

// Refused reports whether the server refused a statement with one of the numbers.
func Refused(err error, numbers ...uint16) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e) && slices.Contains(numbers, e.Number)
}

// Advise adds a hint to an error with a known number.
func Advise(err error) error {
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
	case Refused(err, Deadlock, RecordChanged):
		return "another transaction was in the way; the write is tried again"
	case Refused(err, LockWait):
		return "another transaction holds a lock for longer than innodb_lock_wait_timeout or lock_wait_timeout: SHOW FULL PROCESSLIST shows it"
	case Refused(err, optionPreventsWrites, readOnlyTransaction):
		return "this is a replica, or read_only is on: name the primary in the database's address"
	case Refused(err, AccessDenied, DeniedTable, DeniedColumn):
		return "the user lacks a privilege on the outbox's tables: `waybill migrate --print-grants USER` prints those that it needs"
	case Refused(err, TooManyConnections):
		return "the server has no connection left: raise max_connections, or use fewer"
	case Refused(err, packetTooLarge), errors.Is(err, mysql.ErrPktTooLarge):
		return "a notification does not fit into max_allowed_packet: raise it on the server; `waybill doctor --only packet-size` says what fits"
	case Refused(err, diskFull, tableFull):
		return "the database's disk is full: free space, or let retention keep less; nothing is lost meanwhile"
	case Refused(err, ShuttingDown):
		return "the server is being stopped"
	case Refused(err, killed):
		return "another session killed the statement"
	case Refused(err, tookTooLong, tookTooLongMariaDB):
		return "the statement took longer than max_execution_time or max_statement_time: raise it for this user, or set it to 0"
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, mysql.ErrInvalidConn):
		return "the server ended the connection; its log says why"
	}
	return ""
}
