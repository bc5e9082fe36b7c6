package mysql

import (
	"database/sql/driver"
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
)

// IsPassing reports whether an error of opening an outbox may be temporary: the server is shutting down
// or has no free connection, or the connection was lost. Errors of the network are not included.
func IsPassing(err error) bool {
	return session.Refused(err, session.TooManyConnections, session.ShuttingDown) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn)
}

// IsRefused reports whether an error is an answer of the server, and not an error of the connection.
func IsRefused(err error) bool {
	var e *mysql.MySQLError
	return errors.As(err, &e)
}

// IsDenied reports whether the server refused a statement because a privilege is missing.
func IsDenied(err error) bool {
	return session.Refused(err, session.AccessDenied, session.DeniedTable, session.DeniedColumn, session.NeedsPrivilege)
}
