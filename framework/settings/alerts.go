package settings

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/waybill-go/waybill/framework/notification"
	"github.com/waybill-go/waybill/framework/route"
)

// Alerts says of which troubles an outbox publishes alerts, and who gets them; see package alerts. Without To there
// are none. If it names no cause, all of them count: Dead, DisabledEndpoint, and the others after their usual time.
type Alerts struct {
	// The sinks that get the alerts: names, or mappings as in a route, with a condition or another payload. A sink
	// gets no alert about itself, so name two of different kinds. Required.
	To []route.Rule `yaml:"to"`
	// Alert of a sink with dead deliveries: when there are any, not for each. Default true if no other cause is set.
	Dead bool `yaml:"dead"`
	// Alert of a sink whose breaker has been open for this time, at least 15s. Default 5m if no other cause is set.
	BreakerOpen time.Duration `yaml:"breaker_open" zero:"refused"`
	// Alert of a sink that has had pending notifications for this time without settling any, at least 15s. A
	// paused sink has none. Default 5m if no other cause is set.
	//
	// To settle is to deliver, or to park for a later attempt.
	Stalled time.Duration `yaml:"stalled" zero:"refused"`
	// Alert of each customer's endpoint that was disabled because it failed. Default true if no other cause is set.
	DisabledEndpoint bool `yaml:"disabled_endpoint"`
	// Alert of a transaction that has written to the log and has been open for this time, at least 15s. Default 1m
	// if no other cause is set.
	HeldTransaction time.Duration `yaml:"held_transaction" zero:"refused"`
	// Pause after which an alert is raised again while its cause lasts, at least 1m. 0 is never. Default 0.
	Every time.Duration `yaml:"every"`
	// Address of the dashboard for people, such as https://waybill.example/, which the alerts name. Default: none.
	Dashboard string `yaml:"dashboard"`
}

// The usual times after which a cause raises an alert.
const (
	DefaultAlertBreakerOpen     = 5 * time.Minute
	DefaultAlertStalled         = 5 * time.Minute
	DefaultAlertHeldTransaction = time.Minute
)

// Limits of Alerts. Forwarders judge every 15 seconds.
const (
	leastAlertAfter = 15 * time.Second
	leastAlertEvery = time.Minute
)

// On reports whether there are alerts.
func (a Alerts) On() bool { return len(a.To) > 0 }

// Causeless reports that no cause is set.
func (a Alerts) Causeless() bool {
	return !a.Dead && !a.DisabledEndpoint && a.BreakerOpen == 0 && a.Stalled == 0 && a.HeldTransaction == 0
}

// WithDefaults returns the settings with the causes that count if none is set.
func (a Alerts) WithDefaults() Alerts {
	if a.On() && a.Causeless() {
		a.Dead, a.DisabledEndpoint = true, true
		a.BreakerOpen, a.Stalled, a.HeldTransaction = DefaultAlertBreakerOpen, DefaultAlertStalled, DefaultAlertHeldTransaction
	}
	return a
}

// Validate reports all mistakes, as ErrConfig, by their keys.
func (a Alerts) Validate() error {
	p := &Problems{}
	p.Check("alerts", a)
	return p.Err()
}

func (a Alerts) validate(p *Problems, at string) {
	p.Require(a.On(), "%s.to is missing: name the sinks that get the alerts", at)
	for _, after := range []struct {
		key string
		is  time.Duration
	}{{"breaker_open", a.BreakerOpen}, {"stalled", a.Stalled}, {"held_transaction", a.HeldTransaction}} {
		p.Require(after.is == 0 || after.is >= leastAlertAfter, "%s.%s is %s: use at least %s", at, after.key, after.is, leastAlertAfter)
	}
	p.Require(a.Every == 0 || a.Every >= leastAlertEvery, "%s.every is %s: use at least %s, or 0 for no reminders", at, a.Every, leastAlertEvery)
	for i, r := range a.To {
		p.Require(r.Sink != "", "%s.to[%d].sink is missing: name the sink", at, i)
		if err := r.Check(); err != nil {
			p.Add(fmt.Errorf("%s.to[%d]: %w", at, i, err))
		}
	}
	u, err := url.Parse(a.Dashboard)
	p.Require(a.Dashboard == "" || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil,
		"%s.dashboard is not an address: use one like https://waybill.example/, without a password", at)
}

// Routes returns routes with those of the alerts added. A sink is not routed an alert about itself.
func (a Alerts) Routes(routes route.Routes) route.Routes {
	if !a.On() {
		return routes
	}
	all := make(route.Routes, len(routes)+2)
	maps.Copy(all, routes)
	for _, typ := range []string{notification.AlertRaised, notification.AlertCleared} {
		rules := slices.Clone(routes[typ])
		for _, r := range a.To {
			others := fmt.Sprintf("payload.sink != %s", strconv.Quote(r.Sink))
			if r.When != "" {
				others = "(" + r.When + ") && " + others
			}
			r.When = others
			rules = append(rules, r)
		}
		all[typ] = rules
	}
	return all
}

// Reaches reports whether an alert about a sink can go to another one.
func (a Alerts) Reaches(sink string) bool {
	return slices.ContainsFunc(a.To, func(r route.Rule) bool { return r.Sink != sink })
}
