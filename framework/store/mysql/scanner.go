package mysql

import (
	"time"

	"github.com/waybill-go/waybill/framework/store/internal/driverrows"
)

// columns are the columns of an envelope, as a scanner reads them.
const (
	columnsBeforePayload = "o.`offset`, slot, id, type, version, `key`, occurred_on, deliver_at, metadata"
	columns              = columnsBeforePayload + ", payload"
)

var format = &driverrows.Format{
	Drivers: "github.com/go-sql-driver/mysql",
	Time:    func(text []byte) (time.Time, error) { return parseTime(string(text)) },
}
