package pages

import (
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/internal/chart"
)

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
	h.Delivered, h.Lag = chart.Spark(delivered[:], most), chart.Spark(lag[:], mostLag)
	if h.Failed+h.Dead > 0 {
		h.Errors = chart.Spark(errors[:], most)
	}
	h.MostLag = span(seconds(mostLag))
	return h
}
