package email

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"
)

// address is the template function of that name: one mailbox from an address
// and, before it, an optional display name. It quotes the name and refuses
// anything but exactly one address, so that no payload can smuggle in a second
// recipient: {{address .Payload.name .Payload.email}}.
func address(parts ...any) (string, error) {
	if len(parts) < 1 || len(parts) > 2 {
		return "", fmt.Errorf("address takes an email address, or a name and an email address; got %d arguments", len(parts))
	}
	bare := strings.TrimSpace(fmt.Sprint(parts[len(parts)-1]))
	parsed, err := mail.ParseAddress(bare)
	if err != nil {
		return "", fmt.Errorf("not one email address: %w", err)
	}
	if len(parts) == 2 {
		parsed.Name = collapse(fmt.Sprint(parts[0]))
	}
	return parsed.String(), nil
}

// toInt is the template function int, for comparing and formatting.
func toInt(v any) (int64, error) {
	switch v := v.(type) {
	case json.Number:
		return v.Int64()
	case int:
		return int64(v), nil
	case int64:
		return v, nil
	}
	return 0, fmt.Errorf("a %T is not a whole number", v)
}

// toFloat is the template function float, for comparing and formatting.
func toFloat(v any) (float64, error) {
	switch v := v.(type) {
	case json.Number:
		return v.Float64()
	case int:
		return float64(v), nil
	case int64:
		return float64(v), nil
	case float64:
		return v, nil
	}
	return 0, fmt.Errorf("a %T is not a number", v)
}
