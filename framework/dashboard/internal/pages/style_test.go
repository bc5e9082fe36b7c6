package pages

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

var pair = regexp.MustCompile(`--([a-z]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`)

// WCAG 2.2 requires a contrast of 4.5 to 1 for texts, and of 3 to 1 for the borders of controls (1.4.3
// and 1.4.11).
func TestContrastsAreSufficientInBothSchemes(t *testing.T) {
	t.Parallel()
	style, err := files.ReadFile("static/style.css")
	require.NoError(t, err)
	colours := make(map[string][2]string)
	for _, m := range pair.FindAllStringSubmatch(string(style), -1) {
		colours[m[1]] = [2]string{m[2], m[3]}
	}
	for scheme, name := range []string{"light", "dark"} {
		for _, ground := range []string{"ground", "raised"} {
			for text, least := range map[string]float64{"text": 4.5, "faint": 4.5, "accent": 4.5, "good": 4.5, "warn": 4.5, "bad": 4.5, "strong": 3} {
				t.Run(fmt.Sprintf("%s on %s, %s", text, ground, name), func(t *testing.T) {
					t.Parallel()
					got := contrast(t, colours[text][scheme], colours[ground][scheme])
					require.GreaterOrEqual(t, got, least)
				})
			}
		}
		t.Run("buttons, "+name, func(t *testing.T) {
			t.Parallel()
			for _, button := range []string{"accent", "bad"} {
				require.GreaterOrEqual(t, contrast(t, colours["raised"][scheme], colours[button][scheme]), 4.5)
			}
		})
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
