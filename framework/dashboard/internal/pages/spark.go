package pages

import (
	"github.com/waybill-go/waybill/framework/dashboard/internal/history"
	"github.com/waybill-go/waybill/framework/internal/chart"
)

// hour has the charts and sums of a sink's last hour.
type hour struct {
	// Delivered, Errors and Lag are the points of lines. Delivered and Errors share a scale.
	// Errors is "" if there are none.
	Delivered, Errors, Lag string
	// Done, Failed and Dead are sums of the hour; MostLag is the maximum.
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
