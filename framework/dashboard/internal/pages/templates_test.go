package pages

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/internal/look"
	"github.com/waybill-go/waybill/framework/internal/look/looktest"
)

// Each class of the style sheet is in a template.
func TestEveryClassOfTheStyleIsUsed(t *testing.T) {
	t.Parallel()
	style, err := files.ReadFile("static/style.css")
	require.NoError(t, err)
	looktest.UsesAll(t, look.Style(look.Accent, look.AccentDark, style), files)
}

func TestEachPageHasADifferentKey(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, link := range navigation {
		require.False(t, slices.Contains(keys, link.Key()), "%s leads to two pages", link.Key())
		keys = append(keys, link.Key())
	}
}
