package program

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/outboxtest"
	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/privacy"
	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestAPersonIsFoundAndErasedByCommands(t *testing.T) {
	t.Parallel()
	key := func(letter string) string {
		return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
	}
	path := outboxtest.File(t)
	db, s := outboxtest.SQLite(t, path, sqlite.Config{})
	rules := map[string]privacy.Rule{"joined": {Subject: "/id", Fields: []string{"/email"}}}
	master, err := privacy.LocalKeys(key("a"))
	require.NoError(t, err)
	keys, err := privacy.New(s, privacy.Config{Master: master, Rules: rules})
	require.NoError(t, err)
	require.NoError(t, keys.Prepare(t.Context()))
	e := notification.Envelope{Type: "joined", Version: 1, ID: "n-1", Metadata: notification.Metadata{}, Payload: []byte(`{"id":"c-17","email":"ada@example.com"}`)}
	one := []notification.Envelope{e}
	require.NoError(t, keys.SealByRules(t.Context(), nil, one))
	for _, each := range []notification.Envelope{one[0], {ID: "n-2", Payload: e.Payload}} {
		_, err = db.ExecContext(t.Context(), `INSERT INTO outbox (id, type, version, key, occurred_on, metadata, payload) VALUES (?, 'joined', 1, '', '2026-03-01T00:00:00.000000Z', ?, ?)`,
			each.ID, `{"private-keys":"`+each.Metadata[notification.MetadataPrivateKeys]+`"}`, each.Payload)
		require.NoError(t, err)
	}
	file := filepath.Join(t.TempDir(), "waybill.yaml")
	configure := func(all string) {
		require.NoError(t, os.WriteFile(file, []byte("database: sqlite:"+path+"\nprivacy: {keys: ["+all+"], rules: {joined: {subject: /id, fields: [/email]}}}\n"), 0o600))
	}
	configure(key("a"))
	run := func(args ...string) string {
		r := waybill(t, append([]string{"privacy"}, append(args, "-c", file)...)...)
		require.Zero(t, r.code, "%s%s", r.stdout, r.stderr)
		return r.stdout
	}
	require.Contains(t, run("find", "c-17"), "1 key\n")
	require.Contains(t, run("find", "c-17"), "1 row of types with privacy.rules, not encrypted")
	require.Contains(t, run("erase", "c-17", "--dry-run"), "would erase")
	require.Contains(t, run("find", "c-17", "--json"), `"keys": 1`)
	require.Contains(t, run("erase", "c-17", "--yes"), "erased 2 keys and rows")
	require.Contains(t, run("find", "c-17"), "0 keys\n")
	id := one[0].Metadata[notification.MetadataPrivateKeys]
	require.Equal(t, id+"\n", run("erased"))
	var left int
	require.NoError(t, db.QueryRowContext(t.Context(), `SELECT count(*) FROM outbox WHERE payload LIKE '%ada@%'`).Scan(&left))
	require.Zero(t, left)

	list := filepath.Join(t.TempDir(), "erased.txt")
	require.NoError(t, os.WriteFile(list, []byte(id+"\nabcdefghijklmnop\n"), 0o600))
	require.Contains(t, run("erase", "--keys", list), "erased 1 of 2 keys")
	configure(key("b") + ", " + key("a"))
	require.Contains(t, run("rotate"), "wrapped 1 root key")
	configure(key("b"))
	run("find", "c-17")
	configure(key("a"))
	r := waybill(t, "privacy", "find", "c-17", "-c", file)
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "the master key of private values is missing")
	require.NoError(t, os.WriteFile(list, []byte("no id"), 0o600))
	r = waybill(t, "privacy", "erase", "--keys", list, "-c", file)
	require.Contains(t, r.stderr, `"no" is no id of a key`)
}
