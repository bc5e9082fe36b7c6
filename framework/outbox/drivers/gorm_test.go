package drivers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	gormmysql "gorm.io/driver/mysql"
	gormpostgres "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

type gormOrder struct{ ID, Product string }

func (gormOrder) TableName() string { return "orders" }

// unitOfGorm is a transaction of gorm, or a savepoint in one.
func unitOfGorm(tx *gorm.DB) unit {
	return unit{
		tx:     tx.Statement.ConnPool,
		insert: func(order string) error { return tx.Create(&gormOrder{order, "kite"}).Error },
		nested: func(f func(unit) error) error {
			return tx.Transaction(func(savepoint *gorm.DB) error { return f(unitOfGorm(savepoint)) })
		},
	}
}

func TestGorm(t *testing.T) {
	t.Parallel()
	eachGorm(t, func(t *testing.T) (*shop, gorm.Dialector) {
		_, db := newPool(t)
		return onPostgres(t, db), gormpostgres.New(gormpostgres.Config{Conn: db})
	})
}

func TestGormOnMySQL(t *testing.T) {
	t.Parallel()
	eachGorm(t, func(t *testing.T) (*shop, gorm.Dialector) {
		s := onMySQL(t)
		return s, gormmysql.New(gormmysql.Config{Conn: s.db})
	})
}

func eachGorm(t *testing.T, open func(t *testing.T) (*shop, gorm.Dialector)) {
	for name, config := range map[string]gorm.Config{"as it is": {}, "with prepared statements": {PrepareStmt: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, dialector := open(t)
			config.Logger = logger.Discard
			db, err := gorm.Open(dialector, &config)
			require.NoError(t, err)
			s.refuses(t, db.Statement.ConnPool, db.Session(&gorm.Session{PrepareStmt: true}).Statement.ConnPool)
			s.check(t, false, func(ctx context.Context, f func(unit) error) error {
				return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return f(unitOfGorm(tx)) })
			})
		})
	}
}
