package email

import (
	"fmt"
	"net/url"
	"strings"
)

// field is a field of a mail's header.
type field struct{ name, value string }

// maxUnsubscribe is the longest URL in bytes. It fits on one header line.
const maxUnsubscribe = 900

// parseUnsubscribe parses the result of list-unsubscribe.tmpl: URLs, separated by spaces or line
// ends.
func parseUnsubscribe(text string) ([]string, error) {
	list := strings.Fields(text)
	for _, address := range list {
		u, err := url.Parse(address)
		switch {
		case err != nil || (u.Scheme != "https" && u.Scheme != "mailto") || (u.Scheme == "https" && u.Host == "") || (u.Scheme == "mailto" && u.Opaque == ""):
			return nil, quoting(fmt.Errorf("%w: use an https:// or a mailto: URL", ErrUnsubscribe), address)
		case strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`<>",`, r) }):
			return nil, quoting(fmt.Errorf("%w: it has characters that a URL must escape; the function urlquery does so", ErrUnsubscribe), address)
		case len(address) > maxUnsubscribe:
			return nil, fmt.Errorf("%w: a URL of %d bytes is too long, the limit is %d", ErrUnsubscribe, len(address), maxUnsubscribe)
		}
	}
	return list, nil
}

// unsubscribeFields returns List-Unsubscribe (RFC 2369) and, if there is an https URL,
// List-Unsubscribe-Post, which declares that a POST there is enough (RFC 8058).
func unsubscribeFields(list []string) []field {
	if len(list) == 0 {
		return nil
	}
	fields := []field{{"List-Unsubscribe", "<" + strings.Join(list, ">, <") + ">"}}
	for _, address := range list {
		if strings.HasPrefix(strings.ToLower(address), "https:") {
			return append(fields, field{"List-Unsubscribe-Post", "List-Unsubscribe=One-Click"})
		}
	}
	return fields
}
