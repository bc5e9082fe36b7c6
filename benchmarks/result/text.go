package result

import (
	"fmt"
	"math"
	"strconv"
)

// Count formats a number with commas: 1,234,567.
func Count(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// Number formats a value with about three digits, and whole numbers as such.
func Number(v float64) string {
	switch size := math.Abs(v); {
	case size >= 100, v == math.Trunc(v):
		return Count(int64(math.Round(v)))
	case size >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// Plural formats a number with its noun: 1 run, 2 runs.
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return Count(int64(n)) + " " + word + "s"
}

// Bytes formats a size with its unit.
func Bytes(n int64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.0f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0f kB", float64(n)/1e3)
}
