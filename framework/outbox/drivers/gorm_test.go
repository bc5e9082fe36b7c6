package drivers

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
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
	for name, config := range map[string]gorm.Config{"as it is": {}, "with prepared statements": {PrepareStmt: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, sqlDB := newPool(t)
			s := onPostgres(t, sqlDB)
			config.Logger = logger.Discard
			db, err := gorm.Open(gormpostgres.New(gormpostgres.Config{Conn: sqlDB}), &config)
			require.NoError(t, err)
			s.refuses(t, db.Statement.ConnPool, db.Session(&gorm.Session{PrepareStmt: true}).Statement.ConnPool)
			s.check(t, false, func(ctx context.Context, f func(unit) error) error {
				return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error { return f(unitOfGorm(tx)) })
			})
		})
	}
}
