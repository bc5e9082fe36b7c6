package schedule

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	require.NoError(t, err)
	return at
}

// Clocks in Berlin go from 2:00 to 3:00 on 2026-03-29, and from 3:00 to 2:00 on 2026-10-25.
func TestCronWhenClocksChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		line, zone, after string
		want              []string
	}{
		"a skipped time is due when the clock is set forward": {
			"30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"},
		},
		"a repeated time is due the first time": {
			"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"},
		},
		"the same, from a time between the two": {
			"30 2 * * *", "Europe/Berlin", "2026-10-25T00:45:00Z", []string{"2026-10-26T02:30:00+01:00"},
		},
		"several skipped times are one tick": {
			"0,20,40 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00Z",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00", "2026-03-30T02:00:00+02:00"},
		},
		"each minute of a repeated hour is due once": {
			"*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"},
		},
		"each hour that passes, forward": {
			"0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z",
			[]string{"2026-03-29T01:00:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T04:00:00+02:00"},
		},
		"each hour that passes, back": {
			"0 * * * *", "Europe/Berlin", "2026-10-24T23:30:00Z",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"},
		},
		"each half hour, back": {
			"*/30 * * * *", "Europe/Berlin", "2026-10-25T00:10:00Z",
			[]string{"2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"},
		},
		"each second hour, forward over one of them": {
			"30 */2 * * *", "Europe/Berlin", "2026-03-28T23:00:00Z",
			[]string{"2026-03-29T00:30:00+01:00", "2026-03-29T04:30:00+02:00"},
		},
		"an alias of each hour": {
			"@hourly", "Europe/Berlin", "2026-10-24T23:30:00Z", []string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:00:00+01:00"},
		},
		"a skipped midnight": {
			"@daily", "America/Sao_Paulo", "2018-11-03T12:00:00Z",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"},
		},
		"a repeated midnight": {
			"30 0 * * *", "America/Havana", "2026-10-31T12:00:00Z",
			[]string{"2026-11-01T00:30:00-04:00", "2026-11-02T00:30:00-05:00"},
		},
		"half an hour forward": {
			"15,45 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00", "2026-10-05T02:15:00+11:00"},
		},
		"half an hour back": {
			"45 1 * * *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z",
			[]string{"2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"},
		},
		"a day that the time zone skips": {
			"0 12 * * *", "Pacific/Apia", "2011-12-29T00:00:00Z",
			[]string{"2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"},
		},
		"no clocks change": {
			"0 9 * * MON-FRI", "", "2026-03-06T10:00:00Z", []string{"2026-03-09T09:00:00Z", "2026-03-10T09:00:00Z"},
		},
		"leap days": {"0 0 29 2 *", "UTC", "2026-01-01T00:00:00Z", []string{"2028-02-29T00:00:00Z", "2032-02-29T00:00:00Z"}},
		"one of both days": {
			"0 0 13 * FRI", "UTC", "2026-03-07T00:00:00Z", []string{"2026-03-13T00:00:00Z", "2026-03-20T00:00:00Z"},
		},
		"Sunday is 0 and 7": {"0 0 * * 7", "UTC", "2026-03-07T00:00:00Z", []string{"2026-03-08T00:00:00Z"}},
		"the last day":      {"0 0 L * *", "UTC", "2026-02-07T00:00:00Z", []string{"2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			when := Cron(test.line, test.zone)
			require.NoError(t, when.Err())
			next := at(t, test.after)
			for _, want := range test.want {
				next = when.Next(next)
				require.Equal(t, at(t, want).UTC(), next)
			}
		})
	}
}

// The test asks for the next tick at each quarter of an hour of a year, in several zones. It must be later,
// with no tick in between.
func TestCronSkipsNoTick(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Africa/Casablanca"} {
		for _, line := range []string{"*/20 * * * *", "10,40 0-3 * * *", "0 */3 * * *"} {
			when := Cron(line, zone)
			require.NoError(t, when.Err())
			next := when.Next(at(t, "2026-01-01T00:00:00Z"))
			for now := at(t, "2026-01-01T00:00:00Z"); now.Year() == 2026; now = now.Add(15 * time.Minute) {
				if !now.Before(next) {
					next = when.Next(next)
				}
				require.Equal(t, next, when.Next(now), "%s in %s after %s", line, zone, now)
			}
		}
	}
}

func TestEveryIsAlignedToTheEpoch(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		period      time.Duration
		after, want string
	}{
		{15 * time.Minute, "2026-03-01T12:00:00Z", "2026-03-01T12:15:00Z"},
		{15 * time.Minute, "2026-03-01T12:14:59Z", "2026-03-01T12:15:00Z"},
		{24 * time.Hour, "2026-03-29T12:00:00Z", "2026-03-30T00:00:00Z"},
		{168 * time.Hour, "2026-03-01T12:00:00Z", "2026-03-05T00:00:00Z"},
		{time.Second, "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"},
		{time.Hour, "1969-12-31T22:30:00Z", "1969-12-31T23:00:00Z"},
		{time.Hour, "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
	} {
		require.Equal(t, at(t, test.want), Every(test.period).Next(at(t, test.after)), "%s after %s", test.period, test.after)
	}
	require.Equal(t, "every 15m", Every(15*time.Minute).String())
	require.Equal(t, "every 1h30m", Every(90*time.Minute).String())
	require.Equal(t, "0 9 * * * UTC", Cron(" 0  9 * * *", "").String())
}

func TestMistakesNameTheFieldAndTheFix(t *testing.T) {
	t.Parallel()
	for want, when := range map[string]When{
		`every 0s: use whole seconds, 1s or more`:                                        Every(0),
		`every -1h0m0s: use whole seconds, 1s or more`:                                   Every(-time.Hour),
		`every 999ms: use whole seconds, 1s or more`:                                     Every(999 * time.Millisecond),
		`every 1.5s: use whole seconds, 1s or more`:                                      Every(1500 * time.Millisecond),
		`cron "" has 0 fields: write five`:                                               Cron("", ""),
		`cron "* * * *" has 4 fields: write five`:                                        Cron("* * * *", ""),
		`cron "0 * * * * *" has 6 fields`:                                                Cron("0 * * * * *", ""),
		`cron "TZ=UTC 0 0 * * *": the time zone is not part of the line: set zone`:       Cron("TZ=UTC 0 0 * * *", ""),
		`cron "61 * * * *": syntax error in minute field: '61'`:                          Cron("61 * * * *", ""),
		`cron "0 9 * * MON-FRY": syntax error in day-of-week field: 'MON-FRY'`:           Cron("0 9 * * MON-FRY", ""),
		`cron "0 24 * * *": syntax error in hour field`:                                  Cron("0 24 * * *", ""),
		`cron "*/0 * * * *": invalid interval`:                                           Cron("*/0 * * * *", ""),
		`cron "0 0 31 2 *" is never due: there is no such day`:                           Cron("0 0 31 2 *", ""),
		`cron "0 0 * * FRI-MON" is never due: there is no such day, or a range`:          Cron("0 0 * * FRI-MON", ""),
		`cron "@every 5m": a period is not a crontab line: write every: 5m, or Every(`:   Cron("@every 5m", ""),
		`cron "@reboot": use five fields, or one of @hourly`:                             Cron("@reboot", ""),
		`zone "Europe/Berlinn": unknown time zone Europe/Berlinn: use a name of the IAN`: Cron("* * * * *", "Europe/Berlinn"),
		`zone "../../etc/passwd": `:                                                      Cron("* * * * *", "../../etc/passwd"),
		`zone Local differs`:                                                             Cron("* * * * *", "Local"),
		`it is never due: use`:                                                           {},
	} {
		require.ErrorContains(t, when.Err(), want)
	}
	require.ErrorContains(t, Cron("* * *", "Nowhere").Err(), "Nowhere", "both mistakes are reported")
	require.ErrorContains(t, Cron("* * *", "Nowhere").Err(), "3 fields")
}

func TestTheLatestTickIsFoundWithoutVisitingAll(t *testing.T) {
	t.Parallel()
	for _, when := range []When{Every(time.Second), Every(time.Hour), Cron("* * * * *", "Europe/Berlin"), Cron("30 2 * * *", "Europe/Berlin"), Cron("0 0 29 2 *", "")} {
		first := when.Next(at(t, "2020-01-01T00:00:00Z"))
		now := at(t, "2026-10-25T12:34:56Z")
		last := when.latest(first, now)
		require.False(t, last.After(now))
		require.True(t, when.Next(last).After(now))
		require.Equal(t, first, when.latest(first, first))
		require.Equal(t, first, when.latest(first, when.Next(first).Add(-time.Second)))
	}
}

func FuzzCron(f *testing.F) {
	for _, line := range []string{"0 9 * * MON-FRI", "*/5 1-2,4 L 2 5#2", "@daily", "0 0 31 2 *", "1-5/0 * * * *"} {
		f.Add(line, "Europe/Berlin", int64(1774746000))
	}
	f.Fuzz(func(t *testing.T, line, zone string, after int64) {
		when := Cron(line, zone)
		if when.Err() != nil {
			return
		}
		from := time.Unix(after%4e9, 0)
		if next := when.Next(from); !next.After(from) {
			t.Fatalf("%q in %q after %s: %s", line, zone, from, next)
		}
	})
}
