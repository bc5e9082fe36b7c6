package figures

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheRemovalOfTheLastRowIsSent(t *testing.T) {
	t.Parallel()
	before := extract(bytes.NewReader([]byte(`<p data-row="running"></p>`)))
	changed := extract(bytes.NewReader([]byte(`<p></p>`))).Since(before)
	require.NotNil(t, changed)
	require.NotNil(t, changed.Rows)
	require.Empty(t, changed.Rows)
	require.Nil(t, extract(bytes.NewReader([]byte(`<p></p>`))).Since(changed))
}
