package admin_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/admin"
)

func TestACountSaysWhetherItIsAnEstimate(t *testing.T) {
	t.Parallel()
	for text, of := range map[string]struct {
		n         int64
		estimated bool
	}{
		"0":           {0, false},
		"999":         {999, false},
		"12,345":      {12_345, false},
		"1,234,567":   {1_234_567, false},
		"≈ 0":         {0, true},
		"≈ 987":       {987, true},
		"≈ 12,300":    {12_345, true},
		"≈ 1,240,000": {1_237_461, true},
		"≈ 1,000,000": {999_900, true},
	} {
		require.Equal(t, text, admin.CountText(of.n, of.estimated))
	}
}
