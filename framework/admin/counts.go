package admin

import (
	"math"
	"strconv"
)

// CountText writes a count with separators: 12,345. Of an estimate it writes three digits and says so:
// ≈ 1,240,000.
func CountText(n int64, estimated bool) string {
	if estimated {
		unit := math.Pow10(max(0, len(strconv.FormatInt(n, 10))-3))
		return "≈ " + separated(int64(math.Round(float64(n)/unit)*unit))
	}
	return separated(n)
}

func separated(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
