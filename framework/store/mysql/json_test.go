package mysql

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/waybill-go/waybill/framework/store/mysql/internal/session"
	"github.com/waybill-go/waybill/framework/store/mysql/mysqltest"
)

// A payload that passes the check of a publisher passes the CHECK of the column.
func TestPayloadsThatMySQLRefusesAreFoundBeforehand(t *testing.T) {
	t.Parallel()
	db, err := OpenDB(mysqltest.DSN(t)) // skips the test if no server is available
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	s := &Store{}
	server, err := session.Check(t.Context(), db)
	require.NoError(t, err)
	s.family = server.Family

	accepts := func(text string) (valid bool) {
		return db.QueryRowContext(t.Context(), `SELECT JSON_VALID(?)`, text).Scan(&valid) == nil && valid
	}
	nested := func(n int) string { return strings.Repeat(`[{"a":`, n/2) + "1" + strings.Repeat("}]", n/2) }
	for _, text := range []string{
		`{}`, `"\u0000"`, `"\ud83d\ude00\\"`, ` [1, -2.5e+10, true, null, "\"\\\/\b\f\n\r\t\u00e9é"] `, `{"a":1,"a":2}`, `1e-400`, `1.7976931348623157e308`, nested(30),
	} {
		require.NoError(t, s.CheckPayload([]byte(text)), text)
		require.True(t, accepts(text), text)
	}
	for _, text := range []string{
		``, `x`, `{"a":}`, "\"\xff\"", "\"\t\"", `"\ud800"`, `"\ud800\ud800"`, `"\ud800x"`, `{"a\udc00":1}`, `1e400`, strings.Repeat("1", 400), nested(102),
	} {
		require.Error(t, s.CheckPayload([]byte(text)), text)
	}
	words := []string{`"`, `\\`, `\"`, `\u`, `d83d`, `de00`, `0000`, `[`, `]`, `{`, `}`, `:`, `,`, `1`, `e`, `-`, `.`, `"a"`, `9999`}
	rapid.Check(t, func(r *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(words), 1, 12).Draw(r, "words"), "")
		if s.CheckPayload([]byte(text)) == nil && !accepts(text) {
			r.Fatalf("the server refuses %s", text)
		}
	})
}
