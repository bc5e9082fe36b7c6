package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store/sqlite"
)

func TestATextThatIsWrittenAsABlobIsRefused(t *testing.T) {
	t.Parallel()
	_, db := open(t, sqlite.Config{})
	row := map[string]string{"type": "order.placed", "id": "n-1", "key": "k", "metadata": "{}", "occurred_on": "2026-01-02T03:04:05.000000Z", "deliver_at": "2026-01-02T03:04:05.000000Z"}
	insert := func(blob string) error {
		values := make(map[string]any)
		for column, text := range row {
			if values[column] = text; column == blob {
				values[column] = []byte(text)
			}
		}
		_, err := db.ExecContext(t.Context(), `INSERT INTO outbox (type, id, key, metadata, occurred_on, deliver_at, payload) VALUES (?, ?, ?, ?, ?, ?, '{}')`,
			values["type"], values["id"], values["key"], values["metadata"], values["occurred_on"], values["deliver_at"])
		return err
	}
	require.NoError(t, insert(""))
	for column := range row {
		require.ErrorContains(t, insert(column), "constraint failed", column)
	}
}
