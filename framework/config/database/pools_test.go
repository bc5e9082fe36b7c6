package database_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/config"
	"github.com/waybill-go/waybill/framework/config/database"
)

// mute is a server that ends connections, or does not answer once it is silent. It reports each
// connection.
func mute(t *testing.T) (address string, silent *atomic.Bool, connected <-chan bool) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	reports := make(chan bool, 100)
	silent = new(atomic.Bool)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if !silent.Load() {
				_ = c.Close()
				continue
			}
			defer c.Close()
			reports <- true
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		work.Wait()
	})
	return l.Addr().String(), silent, reports
}

func TestAddressesThatDoNotAnswerLeaveConnectionsToTheOthers(t *testing.T) {
	t.Parallel()
	const connections, dead = 4, 8
	f, pools := newTenants(t, 1, 0), database.NewPools(connections)
	at := func(ctx context.Context, address string) (release func(), err error) {
		d, err := config.ParseDatabase(address)
		require.NoError(t, err)
		_, release, err = pools.Store(ctx, config.Tables{Database: d})
		return release, err
	}
	server, silent, connected := mute(t)
	address := func(i int) string {
		return fmt.Sprintf("postgres://app@%s/dead%d?sslmode=disable&connect_timeout=600", server, i)
	}
	for i := range dead {
		_, err := at(t.Context(), address(i))
		require.Error(t, err)
	}
	silent.Store(true)
	ctx, giveUp := context.WithCancel(t.Context())
	var tries sync.WaitGroup
	defer tries.Wait()
	defer giveUp()
	for i := range dead {
		tries.Go(func() {
			_, err := at(ctx, address(i))
			require.Error(t, err)
		})
	}
	for range connections / 2 {
		<-connected
	}
	release, err := at(t.Context(), f.all[0].Address)
	require.NoError(t, err)
	release()
	require.Empty(t, connected, "no more than half")
}
