package settings_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/settings"
)

func location(t require.TestingT, name string) *time.Location {
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

func TestHoursBeginWhenAClockOfTheZoneShowsThem(t *testing.T) {
	t.Parallel()
	day := settings.Hours{From: "08:00", To: "20:00"}
	night := settings.Hours{From: "22:00", To: "06:00"}
	early := settings.Hours{From: "02:30", To: "20:00"}
	work := settings.Hours{From: "08:00", To: "20:00", Days: "mon-fri"}
	weekend := settings.Hours{From: "22:00", To: "06:00", Days: "Sat, sun"}
	for name, c := range map[string]struct {
		hours    settings.Hours
		zone     string
		at, want string
	}{
		"before":                                 {day, "UTC", "2026-03-10T07:59:59.5Z", "2026-03-10T08:00:00Z"},
		"at the beginning":                       {day, "UTC", "2026-03-10T08:00:00Z", "2026-03-10T08:00:00Z"},
		"within":                                 {day, "UTC", "2026-03-10T19:59:59.999Z", "2026-03-10T19:59:59.999Z"},
		"at the end":                             {day, "UTC", "2026-03-10T20:00:00Z", "2026-03-11T08:00:00Z"},
		"in a zone":                              {day, "Asia/Tokyo", "2026-03-10T11:00:00Z", "2026-03-10T23:00:00Z"},
		"in the zone's next day":                 {day, "Pacific/Kiritimati", "2026-03-10T17:00:00Z", "2026-03-10T18:00:00Z"},
		"before midnight":                        {night, "UTC", "2026-03-10T21:00:00Z", "2026-03-10T22:00:00Z"},
		"over midnight":                          {night, "UTC", "2026-03-11T05:59:00Z", "2026-03-11T05:59:00Z"},
		"after the morning":                      {night, "UTC", "2026-03-11T06:00:00Z", "2026-03-11T22:00:00Z"},
		"until midnight":                         {settings.Hours{From: "08:00", To: "00:00"}, "UTC", "2026-03-11T00:00:00Z", "2026-03-11T08:00:00Z"},
		"from midnight":                          {settings.Hours{From: "00:00", To: "08:00"}, "UTC", "2026-03-11T08:00:00Z", "2026-03-12T00:00:00Z"},
		"on Friday evening":                      {work, "UTC", "2026-03-13T20:00:00Z", "2026-03-16T08:00:00Z"},
		"on Saturday":                            {work, "UTC", "2026-03-14T12:00:00Z", "2026-03-16T08:00:00Z"},
		"a night belongs to its first day":       {weekend, "UTC", "2026-03-16T05:00:00Z", "2026-03-16T05:00:00Z"},
		"and not to its second one":              {weekend, "UTC", "2026-03-14T05:00:00Z", "2026-03-14T22:00:00Z"},
		"over the change in spring":              {day, "Europe/Berlin", "2026-03-28T20:00:00Z", "2026-03-29T06:00:00Z"},
		"a beginning that clocks skip":           {early, "Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"},
		"over the change in autumn":              {day, "Europe/Berlin", "2026-10-24T19:00:00Z", "2026-10-25T07:00:00Z"},
		"a beginning that occurs twice":          {early, "Europe/Berlin", "2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z"},
		"between its two times":                  {early, "Europe/Berlin", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"},
		"the second time of an hour":             {settings.Hours{From: "02:00", To: "03:00"}, "Europe/Berlin", "2026-10-25T01:59:00Z", "2026-10-25T01:59:00Z"},
		"an end that occurs twice":               {settings.Hours{From: "20:00", To: "02:30"}, "Europe/Berlin", "2026-10-25T00:45:00Z", "2026-10-25T01:00:00Z"},
		"hours that clocks skip":                 {settings.Hours{From: "02:00", To: "03:00"}, "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-30T00:00:00Z"},
		"half an hour is skipped":                {settings.Hours{From: "02:15", To: "20:00"}, "Australia/Lord_Howe", "2026-10-03T15:00:00Z", "2026-10-03T15:30:00Z"},
		"half an hour occurs twice":              {settings.Hours{From: "01:45", To: "20:00"}, "Australia/Lord_Howe", "2026-04-04T14:50:00Z", "2026-04-04T14:50:00Z"},
		"half an hour occurs twice, in between":  {settings.Hours{From: "01:45", To: "20:00"}, "Australia/Lord_Howe", "2026-04-04T15:00:00Z", "2026-04-04T15:15:00Z"},
		"a day that does not exist":              {day, "Pacific/Apia", "2011-12-30T08:00:00Z", "2011-12-30T18:00:00Z"},
		"a night over a day that does not exist": {night, "Pacific/Apia", "2011-12-30T10:30:00Z", "2011-12-30T10:30:00Z"},
		"only on a day that does not exist":      {settings.Hours{From: "08:00", To: "20:00", Days: "fri"}, "Pacific/Apia", "2011-12-29T12:00:00Z", "2012-01-05T18:00:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, err := time.Parse(time.RFC3339, c.at)
			require.NoError(t, err)
			require.Equal(t, c.want, c.hours.Timetable().Opening(at, location(t, c.zone)).UTC().Format("2006-01-02T15:04:05.999Z"))
		})
	}
}

// The model looks at the clock each minute.
func TestAnOpeningIsTheFirstMinuteInTheHours(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		clock := rapid.Custom(func(t *rapid.T) string {
			return time.Date(0, 1, 1, 0, rapid.IntRange(0, 24*60-1).Draw(t, "minute"), 0, 0, time.UTC).Format("15:04")
		})
		h := settings.Hours{From: clock.Draw(t, "from"), To: clock.Draw(t, "to")}
		if h.From == h.To {
			t.Skip("refused")
		}
		zone := location(t, rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca", "Pacific/Apia", "Antarctica/Troll"}).Draw(t, "zone"))
		change := rapid.SampledFrom([]string{"2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z", "2026-04-04T15:00:00Z", "2026-10-03T15:30:00Z", "2011-12-30T10:00:00Z", "2026-02-15T02:00:00Z"}).Draw(t, "near")
		at, _ := time.Parse(time.RFC3339, change)
		at = at.Add(time.Duration(rapid.IntRange(-2*24*60, 24*60).Draw(t, "minutes")) * time.Minute)
		want := at
		for ; ; want = want.Add(time.Minute) {
			shown := want.In(zone).Format("15:04")
			if h.From < h.To && h.From <= shown && shown < h.To || h.From > h.To && (h.From <= shown || shown < h.To) {
				break
			}
		}
		require.Equal(t, want.UTC(), h.Timetable().Opening(at, zone).UTC(), "%s after %s in %s", h, at, zone)
	})
}

func TestHoursThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	require.Empty(t, problems("x", settings.Hours{}))
	require.Nil(t, settings.Hours{}.Timetable())
	valid := settings.Hours{Zone: "Europe/Berlin", From: "08:00", To: "20:00", Days: "mon-fri,sun", Unless: `metadata.urgent == "true"`}
	require.Empty(t, problems("x", valid))
	require.Equal(t, "Europe/Berlin", valid.Timetable().Zone.String())
	require.Equal(t, `08:00 to 20:00 in Europe/Berlin, mon-fri,sun, unless metadata.urgent == "true"`, valid.String())
	require.Equal(t, "08:00 to 20:00 in UTC", settings.Hours{From: "08:00", To: "20:00"}.String())
	require.Empty(t, settings.Hours{}.String())
	for name, c := range map[string]struct {
		change func(h *settings.Hours)
		want   string
	}{
		"no beginning":         {func(h *settings.Hours) { h.From = "" }, `sinks.a.hours.from is missing: write a time of day, such as 08:00`},
		"no end":               {func(h *settings.Hours) { h.To = "" }, `sinks.a.hours.to is missing: write a time of day, such as 08:00`},
		"a wrong time":         {func(h *settings.Hours) { h.To = "8pm" }, `sinks.a.hours.to is "8pm": use a time of day, such as 08:00`},
		"the end of a day":     {func(h *settings.Hours) { h.To = "24:00" }, `sinks.a.hours.to is "24:00": use 00:00 for midnight`},
		"an empty period":      {func(h *settings.Hours) { h.To = "08:00" }, `sinks.a.hours: from and to are both 08:00: leave out the hours if deliveries may always begin`},
		"a wrong day":          {func(h *settings.Hours) { h.Days = "mon-fry" }, `sinks.a.hours.days is "mon-fry": use days such as mon-fri, or sat,sun`},
		"an unknown zone":      {func(h *settings.Hours) { h.Zone = "Europe/Berln" }, `sinks.a.hours.zone is neither the name of a zone, such as Europe/Berlin, nor an expression, such as metadata.zone || "Europe/Berlin"`},
		"the machine's zone":   {func(h *settings.Hours) { h.Zone = "Local" }, `zone Local differs between machines`},
		"a zone like a time":   {func(h *settings.Hours) { h.Zone = "+02:00" }, `"Europe/Berlin": zone "+02:00": unknown time zone +02:00: use a name of the IANA database`},
		"a list of zones":      {func(h *settings.Hours) { h.Zone = "split(key, '.')" }, `"Europe/Berlin": expression: "split(key, '.')": its value is a list, not a text`},
		"a wrong expression":   {func(h *settings.Hours) { h.Zone = "metadata.zone ||" }, `"Europe/Berlin": expression: "metadata.zone ||": unexpected token EOF`},
		"a wrong condition":    {func(h *settings.Hours) { h.Unless = "metadata.urgent" }, `sinks.a.hours.unless: expression: "metadata.urgent"`},
		"only a condition":     {func(h *settings.Hours) { *h = settings.Hours{Unless: "true"} }, `sinks.a.hours.from is missing`},
		"only days of no hour": {func(h *settings.Hours) { *h = settings.Hours{Days: "mon"} }, `sinks.a.hours.to is missing`},
	} {
		h := valid
		c.change(&h)
		found := problems("sinks.a.hours", h)
		require.NotEmpty(t, found, name)
		require.Contains(t, strings.Join(found, "\n"), c.want, name)
	}
}

func TestTheZoneOfHoursComesFromData(t *testing.T) {
	t.Parallel()
	for zone, want := range map[string]string{
		`metadata.zone || 'Europe/Berlin'`:                       "Europe/Berlin",
		`payload.zone || metadata.zone || "Asia/Tokyo"`:          "Europe/Rome",
		`metadata.tenant == "acme" ? "Asia/Tokyo" : "Etc/GMT+1"`: "Asia/Tokyo",
		`payload.none || payload.zone`:                           "Europe/Rome",
	} {
		table := settings.Hours{Zone: zone, From: "08:00", To: "20:00"}.Timetable()
		require.Nil(t, table.Zone)
		got, err := table.ZoneOf.Of(t.Context(), &notification.Envelope{Metadata: map[string]string{"tenant": "acme"}, Payload: []byte(`{"zone": "Europe/Rome"}`)}, nil)
		require.NoError(t, err, zone)
		require.Equal(t, want, got, zone)
	}
}
