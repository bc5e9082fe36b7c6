package encoding

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
)

// toInteger converts a number that has no fraction, such as 12, 1.0 or 1e3.
func toInteger(v value) (int64, bool) {
	if n, err := strconv.ParseInt(string(v), 10, 64); err == nil {
		return n, true
	}
	exact, ok := toRational(v)
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return 0, false
	}
	return exact.Num().Int64(), true
}

// toFloat converts a number to a float with so many bits. A number that does not come back when the float is
// written in the usual way, in as many digits as it needs, is refused: it would be another number.
func toFloat(v value, bits int) (float64, error) {
	digits, least := 15, 0x1p-1022 // what a double always has: IEEE 754
	if bits == 32 {
		digits, least = 6, 0x1p-126
	}
	f, err := strconv.ParseFloat(string(v), bits)
	switch {
	case err != nil:
		return 0, misfits("is too large for a number with %d bits", bits)
	case significant(v) <= digits && math.Abs(f) >= least:
		return f, nil
	}
	written, _ := toRational(strconv.AppendFloat(nil, f, 'e', -1, bits))
	exact, ok := toRational(v)
	if !ok || exact.Cmp(written) != 0 {
		return 0, misfits("would be rounded to a number with %d bits", bits)
	}
	return f, nil
}

// significant returns how many digits a number has at most that matter.
func significant(v value) int {
	n := 0
	for _, c := range v {
		switch {
		case c == 'e' || c == 'E':
			return n
		case c >= '1' && c <= '9', c == '0' && n > 0:
			n++
		}
	}
	return n
}

// Numbers outside of these limits are in none of Avro's types. They bound the work.
const (
	maxDigits   = 1100
	maxExponent = 400
)

// toRational returns the exact value of a number within the limits.
func toRational(v value) (*big.Rat, bool) {
	if len(v) > maxDigits {
		return nil, false
	}
	if e := bytes.IndexAny(v, "eE"); e >= 0 {
		exponent, err := strconv.Atoi(string(v[e+1:]))
		if err != nil || exponent < -maxExponent || exponent > maxExponent {
			return nil, false
		}
	}
	return new(big.Rat).SetString(string(v))
}
