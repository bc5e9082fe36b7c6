package config

import (
	"net"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/waybill-go/waybill/framework/settings"
)

func (l *loader) checkObserve(o settings.Observe) {
	l.checkAddress(o.Address)
	l.checkServed(o)
	if err := o.Validate(); err != nil {
		l.complain("observe", err)
	}
}

func (l *loader) checkAddress(address string) {
	if address == "" || l.reported("observe.address") {
		return
	}
	_, port, err := net.SplitHostPort(address)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 {
		l.mistake("observe.address", "observe.address is %q: use host:port, such as 127.0.0.1:8090", address)
	}
}

// checkServed reports settings of the dashboard that have no effect because nothing serves it.
func (l *loader) checkServed(o settings.Observe) {
	if o.Address != "" || l.reported("observe.address") {
		return
	}
	var unused []string
	for name, is := range map[string]bool{
		"hosts": len(o.Hosts) > 0, "proxies": len(o.Proxies) > 0, "auth": !reflect.ValueOf(o.Auth).IsZero(), "masks": len(o.Masks) > 0, "pprof": o.Pprof,
	} {
		if is && !l.reported("observe."+name) {
			unused = append(unused, "observe."+name)
		}
	}
	if slices.Sort(unused); len(unused) > 0 {
		l.mistake("observe.address", "observe.address is missing, so nothing serves the dashboard: write one, such as 127.0.0.1:8090, or remove %s", strings.Join(unused, ", "))
	}
}
