package email

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"strings"

	"github.com/waybill-go/waybill/sinks/internal/line"
)

// address is a template function. It makes one mailbox from an optional display name and an
// address: {{address .Payload.name .Payload.email}}. It quotes the name, and returns an error
// unless there is exactly one address, so that a payload cannot add a second recipient.
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
		parsed.Name = line.Collapse(fmt.Sprint(parts[0]))
	}
	return parsed.String(), nil
}

// addressesFunction is the name of the template function addresses.
const addressesFunction = "addresses"

// addresses is a template function. It makes a list of any number of addresses from data. The value
// is a text with addresses separated by commas or line ends, or a list with one address in each
// element.
func addresses(value any) (string, error) {
	var list []*mail.Address
	switch value := value.(type) {
	case nil, null:
	case string:
		parsed, err := parseAddresses(strings.NewReplacer("\r\n", ",", "\n", ",").Replace(value))
		if err != nil {
			return "", err
		}
		list = parsed
	case []any:
		for _, element := range value {
			parsed, err := mail.ParseAddress(line.Collapse(fmt.Sprint(element)))
			if err != nil {
				return "", fmt.Errorf("%w: an element is not one email address: %w", ErrAddress, err)
			}
			list = append(list, parsed)
		}
	default:
		return "", fmt.Errorf("%w: addresses takes a text or a list; got a %T", ErrAddress, value)
	}
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = a.String()
	}
	return strings.Join(texts, ", "), nil
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
