package postgres_test

import (
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
	"github.com/waybill-go/waybill/framework/store/postgres"
	"github.com/waybill-go/waybill/framework/store/postgres/postgrestest"
)

// withoutSSLMode returns an address as many people write it.
func withoutSSLMode(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(postgrestest.DSN(t))
	require.NoError(t, err)
	query := u.Query()
	query.Del("sslmode")
	u.RawQuery = query.Encode()
	return u.String()
}

func TestAnAddressWithoutSSLModeIsExplained(t *testing.T) {
	t.Parallel()
	address := withoutSSLMode(t)
	ours, err := postgres.OpenDB(address)
	require.NoError(t, err)
	theirs, err := sql.Open("postgres", address)
	require.NoError(t, err)
	for name, db := range map[string]*sql.DB{"OpenDB": ours, "sql.Open": theirs} {
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		_, err = postgres.Migrate(t.Context(), db, postgres.Config{})
		require.ErrorContains(t, err, "SSL is not enabled on the server: without sslmode in the address, TLS is required: add sslmode=disable", name)
		_, err = postgres.Open(t.Context(), db, postgres.Config{})
		require.ErrorContains(t, err, "add sslmode=disable", name)
	}
	require.ErrorContains(t, ours.PingContext(t.Context()), "add sslmode=disable", "also statements of the application")
}

func TestTheAddressOfAHandleIsThatForListening(t *testing.T) {
	t.Parallel()
	address := postgrestest.DSN(t)
	db, err := postgres.OpenDB(address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.Equal(t, address, postgres.AddressOf(db))
	other, err := sql.Open("postgres", address)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	require.Empty(t, postgres.AddressOf(other))

	c := postgres.Config{Listen: postgres.AddressOf(db)}
	_, err = postgres.Migrate(t.Context(), db, c)
	require.NoError(t, err)
	s, err := postgres.Open(t.Context(), db, c)
	require.NoError(t, err)
	heard := make(chan store.News, 1)
	go func() {
		_ = s.Listen(t.Context(), func(n store.News) {
			select {
			case heard <- n:
			default:
			}
		})
	}()
	select {
	case <-heard: // it listens
	case <-time.After(time.Minute):
		t.Fatal("it does not listen")
	}
}
