package plot

import (
	"math"
	"slices"
	"strconv"

	"github.com/waybill-go/waybill/benchmarks/result"
)

// scale maps values to pixels between from and to.
type scale struct {
	low, high float64
	from, to  float64
	log       bool
	ticks     []float64
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

// headroom is the share of an axis that is left above the largest value, for its figure.
const headroom = 1.08

// fromZero returns a scale that begins at 0, or below the least value, and ends at a tick.
func fromZero(values []float64) scale {
	least, most := min(slices.Min(values), 0), max(slices.Max(values), 0)*headroom
	if most == least {
		most = 1
	}
	step := stepFor(most - least)
	s := scale{low: math.Floor(least/step) * step, high: math.Ceil(most/step) * step}
	for n := math.Round(s.low / step); n*step <= s.high+step/2; n++ {
		s.ticks = append(s.ticks, n*step)
	}
	return s
}

// stepFor returns the distance of about five ticks: 1, 2 or 5 times a power of ten.
func stepFor(width float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(width/5)))
	for _, step := range []float64{1, 2, 5} {
		if width/(step*power) <= 6 {
			return step * power
		}
	}
	return 10 * power
}

// logarithmic returns a scale between 1, 2 or 5 times powers of ten, with ticks there, or only at
// powers of ten if it is long.
func logarithmic(values []float64) scale {
	least, most := slices.Min(values), slices.Max(values)
	s := scale{log: true}
	steps := []float64{1, 2, 5}
	if most/least > 5000 {
		steps = steps[:1]
	}
	const rounding = 1e-9
	for power := math.Pow(10, math.Floor(math.Log10(least))); ; power *= 10 {
		for _, step := range steps {
			at := step * power
			if at <= least*(1+rounding) {
				s.ticks = s.ticks[:0] // keeps only the last one below all values
			}
			s.ticks = append(s.ticks, at)
			if at >= most*(1-rounding) && len(s.ticks) > 1 {
				s.low, s.high = s.ticks[0], at
				return s
			}
		}
	}
}

// fewTicks is up to how many different values have a tick each.
const fewTicks = 8

// logarithmicAt is logarithmic, but with a tick at each value if there are few, such as powers of
// two.
func logarithmicAt(values []float64) scale {
	different := slices.Compact(slices.Sorted(slices.Values(values)))
	if len(different) < 2 || len(different) > fewTicks {
		return logarithmic(values)
	}
	const room = 1.1
	return scale{log: true, low: different[0] / room, high: different[len(different)-1] * room, ticks: different}
}

// mostDecimals of a tick; smaller ones are written with an exponent.
const mostDecimals = 6

// labels returns the texts of a scale's ticks. Equally spaced ticks have as many decimals as
// their distance.
func (s scale) labels() []string {
	var texts []string
	for _, tick := range s.ticks {
		decimals := -1
		if !s.log {
			decimals = max(0, -int(math.Floor(math.Log10(s.ticks[1]-s.ticks[0])+1e-9)))
		}
		switch {
		case decimals > mostDecimals, s.log && tick < math.Pow10(-mostDecimals):
			texts = append(texts, strconv.FormatFloat(tick, 'g', 3, 64))
		case tick == math.Trunc(tick) && decimals <= 0:
			texts = append(texts, result.Count(int64(tick)))
		default:
			texts = append(texts, strconv.FormatFloat(tick, 'f', decimals, 64))
		}
	}
	return texts
}
