package database

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/waybill-go/waybill/framework/internal/pace"
	"github.com/waybill-go/waybill/framework/source/kafka"
	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/mysql"
)

// openTimeout limits one attempt of Await, because an address that drops packets would block for
// minutes.
const openTimeout = 15 * time.Second

// Await opens the outbox like [Database.Store], and waits for a database that is not up yet: while
// no server listens, or the server is not ready, it tries again until ctx is done. It returns any
// other error at once, such as a wrong password, an unknown database or missing tables.
//
// It logs what it waits for, the store's warnings about the server's settings, and, as an error, rows
// of the log that are never delivered. A nil logger means slog's default.
func (d *Database) Await(ctx context.Context, logger *slog.Logger) (Store, error) {
	if logger == nil {
		logger = slog.Default()
	}
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = pace.FirstPause, pace.MaxPause
	began, logged := time.Now(), ""
	for {
		s, err := d.try(ctx)
		switch {
		case err == nil:
			if logged != "" {
				logger.Info("connected to the database", "database", d.address, "after", time.Since(began).Round(time.Millisecond))
			}
			d.warn(ctx, s, logger)
			d.reportUnread(ctx, s, logger)
			return s, nil
		case ctx.Err() != nil || !d.IsTemporary(err):
			return nil, errors.Join(ctx.Err(), err)
		case err.Error() != logged:
			logged = err.Error()
			logger.Warn(d.unreachable(err)+" cannot be reached, trying again", "database", d.address, "error", err)
		}
		if !pace.Sleep(ctx, pauses.NextBackOff()) {
			return nil, ctx.Err()
		}
	}
}

// warner is implemented by stores that check the settings of their server.
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

func (d *Database) reportUnread(ctx context.Context, s Store, logger *slog.Logger) {
	switch err := s.Unread(ctx); {
	case errors.Is(err, store.ErrUnsafeLog):
		logger.Error("the log has rows that are never delivered", "database", d.address, "error", err)
	case err != nil:
		logger.Warn(err.Error(), "database", d.address)
	}
}

// unreachable names what an error of Store could not reach.
func (d *Database) unreachable(err error) string {
	if errors.Is(err, kafka.ErrUnavailable) {
		return "the source"
	}
	return "the database"
}

func (d *Database) try(ctx context.Context) (Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return d.Store(ctx)
}
