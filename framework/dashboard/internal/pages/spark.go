package pages

import (
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
)

// hour has the charts and sums of a sink's last hour.
type hour struct {
	// Delivered, Errors and Lag are the points of lines. Delivered and Errors share a scale.
	// Errors is "" if there are none.
	Delivered, Errors, Lag string
	// Done, Failed and Dead are sums of the hour; MostLag is the maximum.
	Done, Failed, Dead int64
	MostLag            string
	// Peak is the highest point of Delivered and Errors.
	Peak string
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
	h.Delivered, h.Lag = sparkLine(delivered[:], most), sparkLine(lag[:], mostLag)
	if h.Failed+h.Dead > 0 {
		h.Errors = sparkLine(errors[:], most)
	}
	h.MostLag, h.Peak = span(seconds(mostLag)), rate(most/(time.Hour/history.Points).Seconds())
	return h
}

// Size of a spark line's drawing, which the page stretches.
const (
	sparkWidth  = 240
	sparkHeight = 40
)

// sparkLine returns the points attribute of a polyline through values at equal distances, from 0 at
// the bottom to most at the top.
func sparkLine(values []float64, most float64) string {
	var points []byte
	for i, v := range values {
		y := sparkHeight - 1.0
		if most > 0 {
			y -= v / most * (sparkHeight - 3)
		}
		if i > 0 {
			points = append(points, ' ')
		}
		points = strconv.AppendFloat(points, float64(i)*sparkWidth/float64(max(len(values)-1, 1)), 'f', 1, 64)
		points = append(points, ',')
		points = strconv.AppendFloat(points, y, 'f', 1, 64)
	}
	return string(points)
}
