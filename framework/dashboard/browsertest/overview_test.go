package browsertest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheOverviewOfAnEmptyOutboxSaysWhatComesNext(t *testing.T) {
	t.Parallel()
	b := newTab(t, newSite(t).url)
	require.Contains(t, b.open("/"), "waybill forward -c waybill.yaml")
	b.shoot("overview-empty")
}
