package session

import (
	"fmt"

	"github.com/waybill-go/waybill/framework/store"
)

// Family is MySQL or MariaDB.
type Family struct {
	Name     string
	NoteLife string
	// unknown is the number of the error that a server of the other family returns.
	unknown uint16
}

// Families has the families that a new session tries in order. Within one statement UNIX_TIMESTAMP()
// minus Uptime is exactly the time of the server's start.
var Families = []Family{
	{"MySQL", `SET @waybill_life = (SELECT CONCAT(@@server_uuid, ' ', UNIX_TIMESTAMP() - VARIABLE_VALUE)
		FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Uptime')`, unknownVariable},
	{"MariaDB", `SET @waybill_life = (SELECT CONCAT(@@server_uid, ' ', UNIX_TIMESTAMP() - VARIABLE_VALUE)
		FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME')`, unknownVariable},
}

// foreign reports whether a statement failed because the server belongs to another family.
func (f Family) foreign(err error) bool { return Refused(err, f.unknown, unknownTable, NoSuchTable) }

// ErrNoLife means that the server does not show when it started.
var ErrNoLife = fmt.Errorf("%w: the server does not show its identity and Uptime: on MySQL performance_schema must be on, on MariaDB the version 10.6 or later",
	store.ErrUnsupported)
