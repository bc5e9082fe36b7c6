package pages

import (
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
)

// The inner size of a line's drawing, which the page stretches.
const (
	lineWidth  = 240
	lineHeight = 40
)

// line is the points attribute of a polyline through values, from 0 at the bottom to most at
// the top.
func line(values [history.Points]float64, most float64) string {
	var points strings.Builder
	for i, v := range values {
		if i > 0 {
			points.WriteByte(' ')
		}
		y := lineHeight - 1.0
		if most > 0 {
			y -= v / most * (lineHeight - 3)
		}
		points.WriteString(strconv.Itoa(i * lineWidth / (history.Points - 1)))
		points.WriteByte(',')
		points.WriteString(strconv.FormatFloat(y, 'f', 1, 64))
	}
	return points.String()
}

// hour is the last hour of a sink, to draw and to sum up.
type hour struct {
	// Delivered and Errors are lines on one scale, Lag one on its own. Errors is "" if there
	// are none.
	Delivered, Errors, Lag string
	// Done, Failed, Dead and MostLag sum it up.
	Done, Failed, Dead int64
	MostLag            string
}

func hourOf(points [history.Points]history.Point) (h hour) {
	var delivered, errors, lag [history.Points]float64
	var most, mostLag float64
	for i, p := range points {
		delivered[i], errors[i], lag[i] = float64(p.Delivered), float64(p.Failed+p.Dead), p.Lag.Seconds()
		most, mostLag = max(most, delivered[i], errors[i]), max(mostLag, lag[i])
		h.Done += p.Delivered
		h.Failed += p.Failed
		h.Dead += p.Dead
	}
	h.Delivered, h.Lag = line(delivered, most), line(lag, mostLag)
	if h.Failed+h.Dead > 0 {
		h.Errors = line(errors, most)
	}
	h.MostLag = span(seconds(mostLag))
	return h
}
