// Package look has the style sheet that the pages of the dashboard and of the portal share, and the contrast of its
// colours.
package look

import (
	"bytes"
	_ "embed"
	"math"
	"regexp"
	"slices"
	"strconv"
)

//go:embed base.css
var base []byte

// Accent and AccentDark are the colours of links and buttons, on light and on dark ground.
const (
	Accent     = "#0b5cad"
	AccentDark = "#7cb9ff"
)

// Legible is the least contrast of texts to their ground, by WCAG 2.2, 1.4.3.
const Legible = 4.5

// Style returns the style sheet of pages: the shared one with the accents, and after it their own.
func Style(accent, accentDark string, own []byte) []byte {
	return slices.Concat(bytes.Replace(base, accents(Accent, AccentDark), accents(accent, accentDark), 1), own)
}

func accents(light, dark string) []byte {
	return []byte("--accent: light-dark(" + light + ", " + dark + ");")
}

var pair = regexp.MustCompile(`--([a-z]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)`)

// colours returns the colours of the shared style sheet on light and on dark ground, by name.
func colours() map[string][2]string {
	all := make(map[string][2]string)
	for _, m := range pair.FindAllSubmatch(base, -1) {
		all[string(m[1])] = [2]string{string(m[2]), string(m[3])}
	}
	return all
}

// Contrast returns the contrast of a colour, as #rrggbb, to the ground of pages, or to that of tables and buttons if
// it is less: from 1 to 21, by WCAG 2.2. A button has the latter as its text.
func Contrast(colour string, dark bool) float64 {
	scheme := 0
	if dark {
		scheme = 1
	}
	all := colours()
	return min(contrast(colour, all["ground"][scheme]), contrast(colour, all["raised"][scheme]))
}

func contrast(a, b string) float64 {
	x, y := luminance(a), luminance(b)
	return (max(x, y) + .05) / (min(x, y) + .05)
}

// luminance returns the relative luminance of a colour by WCAG 2.2.
func luminance(colour string) (sum float64) {
	for i, weight := range []float64{.2126, .7152, .0722} {
		n, _ := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
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
