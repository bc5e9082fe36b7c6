package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
)

func TestTimesKeepTheirMicroseconds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := time.UnixMicro(rapid.Int64Range(-62e15, 250e15).Draw(t, "a"))
		b := time.UnixMicro(rapid.Int64Range(-62e15, 250e15).Draw(t, "b"))
		got, err := parseTime(formatTime(a.In(time.FixedZone("", 3600))))
		if err != nil || !got.Equal(a) || got.Location() != time.UTC {
			t.Fatalf("%s came back as %s, %v", a.UTC(), got, err)
		}
		if want := notification.ClampTime(a).Format(timeLayout); formatTime(a) != want {
			t.Fatalf("%s instead of %s", formatTime(a), want)
		}
		if a.Before(b) != (formatTime(a) < formatTime(b)) {
			t.Fatalf("%s and %s compare differently as texts", a.UTC(), b.UTC())
		}
	})
}

// The remaining time of a one-hour lease is at most an hour.
func TestElapsedIsExactToTheMillisecond(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	d := &dialect{}
	rapid.Check(t, func(t *rapid.T) {
		want := time.Duration(rapid.Int64Range(0, 1e10).Draw(t, "milliseconds")) * time.Millisecond
		later := d.NowPlus(want)
		var elapsed int64
		if err := db.QueryRowContext(context.Background(), `SELECT `+d.Elapsed(`later`)+` FROM (SELECT `+later.Text+` AS later)`, later.Args...).Scan(&elapsed); err != nil {
			t.Fatal(err)
		}
		if got := -time.Duration(elapsed) * time.Microsecond; got != want {
			t.Fatalf("a time in %s is %s away", want, got)
		}
	})
}

// The reader must understand every time that the CHECK of the log accepts, or it would stop at the row
// forever. The fuzzer searches for texts on which they disagree.
func FuzzReadersUnderstandAcceptedTimes(f *testing.F) {
	for _, text := range []string{
		"2026-01-02T03:04:05.678901Z", "2026-01-02 03:04:05", "2026-02-30T24:59:59.5+14:00", "2026-01-02T03:04:05 -00:01 ", "2026-01-02T03:04:05z",
		"2026-01-02T03:04:05.Z", "2026-01-02  03:04:05", "2026-01-02", "now", "2460000.5", "2026-01-02T03:04:05+1:00", "", "2026-01-02T03:04:60Z", "2026-01-02T03:04:05\x00 or so",
	} {
		f.Add(text)
	}
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(f, err)
	db.SetMaxOpenConns(1) // each connection would have its own database
	f.Cleanup(func() { require.NoError(f, db.Close()) })
	_, err = Migrate(f.Context(), db, Config{})
	require.NoError(f, err)

	f.Fuzz(func(t *testing.T, text string) {
		parsed, parseErr := parseTime(text)
		var same bool
		err := db.QueryRow(`INSERT INTO outbox (type, payload, occurred_on) VALUES ('a', '1', ?)
			RETURNING abs(julianday(occurred_on) - julianday(?)) < 1e-7`, text, formatTime(parsed)).Scan(&same)
		if err != nil {
			return // the log refused the text
		}
		require.NoError(t, parseErr, "the log accepts %q", text)
		require.True(t, same, "%q was read as %s", text, parsed)
		_, err = db.Exec(`DELETE FROM outbox`)
		require.NoError(t, err)
	})
}
