package webhooks

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/store"
)

// A header takes much more memory than its bytes on the wire.
func TestManyHeadersOfAnAnswerAreNotKept(t *testing.T) {
	t.Parallel()
	few := http.Header{"A": {"1", "2"}, "B": {"\x00\xff"}}
	require.Equal(t, map[string][]string{"A": {"1", "2"}, "B": {"\uFFFD\uFFFD"}}, clean(few))
	require.Len(t, clean(http.Header{"A": make([]string, maxValues+1)}), 1)
	require.NotContains(t, clean(http.Header{"A": make([]string, maxValues+1)}), "A")
	require.NotContains(t, clean(http.Header{"A": {string(make([]byte, maxBody))}}), "A")
	require.Greater(t, sizeOf(store.Exchange{Header: clean(few), Body: "body"}), 3*headerBytes)
}
