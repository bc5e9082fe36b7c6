package doctor

import (
	"context"
	"errors"

	"github.com/waybill-go/waybill/framework/store"
)

const pollOnly = "set forwarder.listen: false, or use an address that leads to the server itself"

// listens reports whether the forwarder listens for NOTIFY.
func (x *examination) listens() bool {
	return x.PostgreSQL.Listen != "" || x.PostgreSQL.ListenDSN != nil
}

func checkPooler(ctx context.Context, x *examination) (verdict, error) {
	pooled, err := x.pg.IsPooled(ctx)
	switch {
	case err != nil:
		return verdict{}, err
	case pooled && x.listens():
		return warn(pollOnly, "a transaction pooler is in front of the server, and the forwarder listens through it"), nil
	case pooled:
		return ok("a transaction pooler is in front of the server, and the forwarder only polls"), nil
	}
	return ok("there is no transaction pooler"), nil
}

// announcing is a store that can both listen and announce.
type announcing interface {
	store.Listener
	store.Announcer
}

// checkListen listens, announces and waits for the announcement.
func checkListen(ctx context.Context, x *examination) (verdict, error) {
	s, both := x.store.(announcing)
	if !both || !x.listens() {
		return ok("the forwarder only polls"), nil
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	listens, heard := make(chan struct{}, 1), make(chan struct{}, 1)
	ended := make(chan error, 1)
	go func() {
		defer close(ended)
		ended <- s.Listen(ctx, func(news store.News) {
			to := heard
			if news == store.NewsUnknown {
				to = listens
			} else if news != store.NewsRows {
				return
			}
			select {
			case to <- struct{}{}:
			default:
			}
		})
	}()
	defer func() {
		end()
		for range ended { // wait until Listen has returned
		}
	}()
	for {
		select {
		case <-listens:
			if err := s.Announce(ctx); err != nil {
				return verdict{}, err
			}
		case <-heard:
			return ok("a NOTIFY came back"), nil
		case err := <-ended:
			if err == nil || errors.Is(err, context.DeadlineExceeded) {
				return warn(pollOnly, "no NOTIFY came back in time"), nil
			}
			return warn(pollOnly, "%v", err), nil
		}
	}
}
