package waybillpgx

import (
	"database/sql"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/waybill-go/waybill/framework/store/postgres"
)

// SessionsAs opens connections as those of a pool.
func SessionsAs(pool *pgxpool.Pool) postgres.Sessions { return sessions{pool.Config()} }

// Handle returns the handle for what Waybill does by itself.
func (o *Outbox) Handle() *sql.DB { return o.db }
