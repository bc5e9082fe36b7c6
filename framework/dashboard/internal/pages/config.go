package pages

import (
	"context"
	"strings"
)

type configPage struct {
	// Known says that this process has a configuration.
	Known bool
	Lines []string
	// Failed is why the configuration cannot be shown.
	Failed string
	// Alike counts the other forwarders with the same settings as this process; Others lists the
	// forwarders with different settings.
	Alike  int
	Others []string
	// Digest is the digest of the settings of this process's forwarder; "" if there is no
	// forwarder, or no heartbeat yet.
	Digest string
}

func configuration(ctx context.Context, r *request) (any, error) {
	page := configPage{Known: r.Configuration != nil}
	if page.Known {
		text, err := r.Configuration()
		if err != nil {
			page.Failed = err.Error()
		}
		page.Lines = strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	}
	m, err := r.Store.Membership(ctx)
	if err != nil || r.Forwarder == nil {
		return page, err
	}
	here := r.Forwarder.OwnerIn(r.Database)
	for _, member := range m.Members {
		if member.Owner == here {
			page.Digest = member.Settings
		}
	}
	for _, member := range m.Members {
		switch {
		case page.Digest == "" || member.Owner == here:
		case member.Settings == page.Digest:
			page.Alike++
		default:
			page.Others = append(page.Others, member.Owner)
		}
	}
	return page, nil
}
