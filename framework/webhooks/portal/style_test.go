package portal_test

import (
	"bytes"
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/waybill-go/waybill/framework/webhooks/portal"
)

var pair = regexp.MustCompile(`--([a-z]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`)

// WCAG 2.2 requires a contrast of 4.5 to 1 for texts, and of 3 to 1 for the borders of controls (1.4.3
// and 1.4.11).
func TestContrastsAreSufficientInBothSchemes(t *testing.T) {
	t.Parallel()
	colours := make(map[string][2]string)
	for _, m := range pair.FindAllStringSubmatch(string(portal.Style), -1) {
		colours[m[1]] = [2]string{m[2], m[3]}
	}
	for scheme, name := range []string{"light", "dark"} {
		for _, ground := range []string{"ground", "raised"} {
			for text, least := range map[string]float64{"text": 4.5, "faint": 4.5, "accent": 4.5, "good": 4.5, "warn": 4.5, "bad": 4.5, "strong": 3} {
				require.GreaterOrEqual(t, contrast(t, colours[text][scheme], colours[ground][scheme]), least, "%s on %s, %s", text, ground, name)
			}
		}
		for _, button := range []string{"accent", "bad"} {
			require.GreaterOrEqual(t, contrast(t, colours["raised"][scheme], colours[button][scheme]), 4.5, "%s, %s", button, name)
		}
	}
	require.Equal(t, [2]string{portal.DefaultAccent, portal.DefaultAccentDark}, colours["accent"], "which Config replaces")
}

// Each class of the style sheet is in a template.
func TestEveryClassOfTheStyleIsUsed(t *testing.T) {
	t.Parallel()
	style := regexp.MustCompile(`(?s)/\*.*?\*/`).ReplaceAll(portal.Style, nil)
	names, err := fs.Glob(portal.Templates, "templates/*.html")
	require.NoError(t, err)
	var pages bytes.Buffer
	for _, name := range names {
		page, err := portal.Templates.ReadFile(name)
		require.NoError(t, err)
		pages.Write(page)
	}
	for _, class := range regexp.MustCompile(`\.([a-z][a-z-]*)`).FindAllSubmatch(style, -1) {
		require.Regexp(t, `class="[^>]*\b`+string(class[1])+`\b`, pages.String(), "no page uses .%s", class[1])
	}
}

// contrast returns the contrast ratio of two colours by WCAG 2.2.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + .05) / (min(x, y) + .05)
}

func luminance(t *testing.T, colour string) (sum float64) {
	t.Helper()
	require.Len(t, colour, 7)
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		require.NoError(t, err)
		c := float64(n) / 255
		if c <= .04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
