package program

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/doctor"
)

// findings returns the findings of a call with --json, by id.
func findings(t *testing.T, r result) map[string]doctor.Finding {
	t.Helper()
	var all []doctor.Finding
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &all), "%s%s", r.stdout, r.stderr)
	found := make(map[string]doctor.Finding)
	for _, f := range all {
		found[f.ID] = f
	}
	return found
}

func TestDoctorOfAnOutboxThatIsNotMigrated(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		r := waybill(t, "doctor", "--only", "database,schema,lanes", "--timeout", "1m", "--database", o.address)
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "waybill: checks with problems: schema\n", r.stderr)
		require.Contains(t, r.stdout, "    waybill migrate\n")
		require.Regexp(t, `\n lanes +skip +the outbox cannot be opened: see schema\n`, r.stdout)
		require.NotContains(t, r.stdout, "\nlanes: ", "what was skipped for another check needs no explanation")
		r = waybill(t, "doctor", "--only", "schema,lanes,lag", "--timeout", "1m", "--database", o.address)
		require.Regexp(t, `\n lanes and 1 more +skip +the outbox cannot be opened: see schema\n`, r.stdout)
	})
}

func TestDoctorsExitCodes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		destination := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		defer destination.Close()
		file := o.config(t, "60s", destination.URL)
		f := startForward(t, "-c", file)
		defer f.end(t)
		base := []string{"doctor", "-c", file, "--timeout", "1m", "--only", "database,schema,lanes,dead,forwarders,sinks,unrouted"}

		r := waybill(t, append(base, "--strict")...)
		require.Zero(t, r.code, "%s%s", r.stdout, r.stderr)
		require.Regexp(t, `^ CHECK +STATUS +FINDING\n database +ok +answers within `, r.stdout)
		require.NotContains(t, r.stdout, "docs/doctor.md")

		_, err := o.db.ExecContext(t.Context(), `INSERT INTO outbox_parked (sink, "offset", slot, id, type, version, key, occurred_on, metadata, payload, state, attempt)
			VALUES ('partner', 1, 0, 'i', 'order.placed', 1, 'k', '2026-01-01T00:00:00.000000Z', '{}', '{}', 'dead', 1)`)
		require.NoError(t, err)
		r = waybill(t, base...)
		require.Zero(t, r.code, "a warning: %s", r.stdout)
		require.Regexp(t, `\n dead +warn +dead: partner: 1\n`, r.stdout)
		require.Contains(t, r.stdout, "\ndead: A dead delivery is not tried again until someone requeues it.\n    waybill parked list --state dead --sink partner")
		require.Contains(t, r.stdout, "\n    docs/doctor.md#dead\n")
		r = waybill(t, append(base, "--strict")...)
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "waybill: checks with problems: dead\n", r.stderr)

		destination.Close()
		r = waybill(t, append(base, "--json")...)
		require.Equal(t, exitFailed, r.code)
		require.Equal(t, "waybill: checks with problems: sinks\n", r.stderr)
		found := findings(t, r)
		require.Len(t, found, 7)
		require.Equal(t, doctor.Fail, found["sinks"].Status)
		require.Equal(t, "docs/doctor.md#sinks", found["sinks"].Link)
	})
}

func TestDoctorRefusesWrongUsage(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`there is no check "lane": use configuration, database`:                     {"--only", "lane"},
		`there is no check "x"`:                                                     {"--skip", "x"},
		"--timeout is 0s: use more than 0":                                          {"--timeout", "0s"},
		"--held-after is -1s: use more than 0":                                      {"--held-after", "-1s"},
		`--duty is "king": use publisher, consumer, forwarder, scheduler, operator`: {"--duty", "king"},
		`unexpected argument "now"`:                                                 {"now"},
		"database is missing: name a configuration file with -c, or set it with WAYBILL_DATABASE or --database": nil,
	} {
		r := waybill(t, append([]string{"doctor"}, args...)...)
		require.Equal(t, exitUsage, r.code, want)
		require.Contains(t, r.stderr, want)
		require.Empty(t, r.stdout)
	}
}

func TestDoctorChecksTheDatabaseOfAConfigurationWithMistakes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, o outbox) {
		o.migrate(t)
		file := writeFile(t, fmt.Sprintf("database: %q\nsinks: {partner: {kind: http, with: {url: \"${NO_SUCH_VARIABLE}\"}}}\nroutes: {\"*\": [partner]}\n", o.address))
		r := waybill(t, "doctor", "-c", file, "--json", "--timeout", "1m", "--skip", "durability,disk")
		require.Equal(t, exitFailed, r.code, r.stderr)
		found := findings(t, r)
		for id, f := range found {
			switch id {
			case "configuration":
				require.Equal(t, doctor.Fail, f.Status)
				require.Contains(t, f.Text, "NO_SUCH_VARIABLE")
			case "types", "halted-keys", "sinks", "endpoints", "alerts":
				require.Equal(t, doctor.Skip, f.Status, "%+v", f)
			default:
				require.Equal(t, doctor.OK, f.Status, "%+v", f)
			}
		}
	})
}

func TestDoctorCreatesNoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	r := waybill(t, "doctor", "--database", "sqlite:"+path)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "the file "+path)
	require.NoFileExists(t, path)
}
