package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Rate bounds how many deliveries to a sink begin in a period, over all forwarders: each gets a
// part of the rate, by its part of the sink's lanes. The zero value means no bound. As text it
// is "50/s" or "50/s, burst 100", with s, m or h.
type Rate struct {
	// Events is the number of deliveries in each Per.
	Events float64
	Per    time.Duration
	// Burst is how many may begin at once after a pause; default: as many as in a second, at
	// least 1.
	Burst int
}

// rateUnits are the units of a rate.
var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}

// ParseRate parses the text form of a Rate. Its error shows the valid form.
func ParseRate(text string) (Rate, error) {
	wrong := fmt.Errorf("%q is not a rate: use 50/s, 100/m or 1000/h, and to let more go at once after a pause 50/s, burst 100", text)
	amount, burst, hasBurst := strings.Cut(text, ",")
	number, unit, _ := strings.Cut(strings.TrimSpace(amount), "/")
	events, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	per := rateUnits[strings.TrimSpace(unit)]
	if err != nil || per == 0 || math.IsNaN(events) || math.IsInf(events, 0) {
		return Rate{}, wrong
	}
	r := Rate{Events: events, Per: per}
	if hasBurst {
		name, count, _ := strings.Cut(strings.TrimSpace(burst), " ")
		if r.Burst, err = strconv.Atoi(strings.TrimSpace(count)); err != nil || name != "burst" || r.Burst < 1 {
			return Rate{}, wrong
		}
	}
	if events <= 0 {
		return Rate{}, fmt.Errorf("%q lets nothing through: use more than 0, or pause the sink", text)
	}
	return r, nil
}

// UnmarshalText parses a rate as ParseRate does.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// String returns the text form of a rate; "" for no bound.
func (r Rate) String() string {
	if r == (Rate{}) {
		return ""
	}
	text := strconv.FormatFloat(r.Events, 'g', -1, 64) + "/" + r.Per.String()
	for name, unit := range rateUnits {
		if r.Per == unit {
			text = strconv.FormatFloat(r.Events, 'g', -1, 64) + "/" + name
		}
	}
	if r.Burst > 0 {
		text += ", burst " + strconv.Itoa(r.Burst)
	}
	return text
}

func (r Rate) validate(p *Problems, at string) {
	if r == (Rate{}) {
		return
	}
	p.Require(r.Events > 0 && !math.IsInf(r.Events, 0) && r.Per > 0 && r.Burst >= 0,
		"%s is %g in %s, burst %d: use more than 0, and a burst of at least 1", at, r.Events, r.Per, r.Burst)
}
