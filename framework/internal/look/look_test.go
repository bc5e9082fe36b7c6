package look

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// WCAG 2.2 requires a contrast of 4.5 to 1 for texts, and of 3 to 1 for the borders of controls (1.4.3
// and 1.4.11).
func TestContrastsAreSufficientInBothSchemes(t *testing.T) {
	t.Parallel()
	for name, least := range map[string]float64{"text": Legible, "faint": Legible, "accent": Legible, "good": Legible, "warn": Legible, "bad": Legible, "strong": 3} {
		for scheme, colour := range colours()[name] {
			require.GreaterOrEqual(t, Contrast(colour, scheme == 1), least, "%s, %s", name, colour)
		}
	}
	require.InDelta(t, 21, contrast("#000000", "#ffffff"), .001)
}

func TestAStyleHasTheAccentsAndWhatIsOfItsPages(t *testing.T) {
	t.Parallel()
	require.Equal(t, [2]string{Accent, AccentDark}, colours()["accent"], "which Style replaces")
	style := string(Style("#7a1fa2", "#d9a5ee", []byte("nav {}")))
	require.Contains(t, style, "--accent: light-dark(#7a1fa2, #d9a5ee);")
	require.NotContains(t, style, Accent)
	require.Contains(t, style, "}\nnav {}")
}
