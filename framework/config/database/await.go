package database

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store/mysql"
)

// lookTimeout bounds one try of Await: an address that swallows packets would
// keep it for minutes.
const lookTimeout = 15 * time.Second

// Await is Store for a database that may come up later than the program does:
// while no server listens there, or the server is not ready, it tries again until
// ctx is done. Everything else, such as a wrong password, an unknown database or
// missing tables, is an error at once.
//
// What the store warns of, such as a setting of the server, goes to logger, whose default is slog's.
func (d *Database) Await(ctx context.Context, logger *slog.Logger) (Store, error) {
	if logger == nil {
		logger = slog.Default()
	}
	pace := backoff.NewExponentialBackOff()
	pace.InitialInterval, pace.MaxInterval = 100*time.Millisecond, 5*time.Second
	began, said := time.Now(), ""
	for {
		s, err := d.look(ctx)
		switch {
		case err == nil:
			if said != "" {
				logger.Info("the database is there", "database", d.address, "after", time.Since(began).Round(time.Millisecond))
			}
			d.warn(ctx, s, logger)
			return s, nil
		case ctx.Err() != nil || !d.passes(err):
			return nil, errors.Join(ctx.Err(), err)
		case err.Error() != said:
			said = err.Error()
			logger.Warn(d.away(err)+" cannot be reached, trying again", "database", d.address, "error", err)
		}
		if !sleep(ctx, pace.NextBackOff()) {
			return nil, ctx.Err()
		}
	}
}

// warner is a store that knows settings of its server that should be others.
type warner interface {
	Warnings(context.Context) ([]string, error)
}

var _ warner = (*mysql.Store)(nil)

func (d *Database) warn(ctx context.Context, s Store, logger *slog.Logger) {
	w, is := s.(warner)
	if !is {
		return
	}
	texts, err := w.Warnings(ctx)
	if err != nil {
		texts = append(texts, err.Error())
	}
	for _, text := range texts {
		logger.Warn(text, "database", d.address)
	}
}

// away is what an error says cannot be reached.
func (d *Database) away(err error) string {
	if errors.Is(err, kafka.ErrUnavailable) {
		return "the source"
	}
	return "the database"
}

func (d *Database) look(ctx context.Context) (Store, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return d.Store(ctx)
}

// sleep waits and returns true, or false once ctx is done.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
