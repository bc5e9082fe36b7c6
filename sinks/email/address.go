package email

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"
)

// Limits of a mail's addresses. The first is what every server must take in one
// transaction (RFC 5321, section 4.5.3.1.8), the second the longest path (RFC
// 5321, section 4.5.3.1.3) without its brackets; the third keeps a header's
// line below the 998 bytes of RFC 5322 whatever the encoding.
const (
	maxRecipients  = 100
	maxAddress     = 254
	maxDisplayName = 200
)

// recipients lists the envelope's recipients, each once.
func recipients(l *letter) ([]string, error) {
	var list []string
	for _, addresses := range [][]*mail.Address{l.to, l.cc, l.bcc} {
		for _, a := range addresses {
			if address := bare(a); !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	if len(list) > maxRecipients {
		return nil, fmt.Errorf("%w: %d recipients are more than the %d that every server takes at once; publish a notification for each", ErrAddress, len(list), maxRecipients)
	}
	return list, nil
}

// parseAddresses parses a comma-separated list; an empty text is an empty list.
// Line ends are spaces: a template file ends with one, and none can become a
// header line.
func parseAddresses(text string) ([]*mail.Address, error) {
	text = collapse(text)
	if strings.Trim(text, ", ") == "" {
		return nil, nil
	}
	list, err := mail.ParseAddressList(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	for _, a := range list {
		if len(a.Address) > maxAddress {
			return nil, fmt.Errorf("%w: an address of %d bytes is too long, the limit is %d", ErrAddress, len(a.Address), maxAddress)
		}
		if len(a.Name) > maxDisplayName {
			return nil, fmt.Errorf("%w: the name of an address is %d bytes long, the limit is %d", ErrAddress, len(a.Name), maxDisplayName)
		}
	}
	return list, nil
}

// Control characters that stand for what separates addresses, in what a template
// printed from data: the text of the template may have a list, and a value may not.
const (
	dataComma     = "\x1c"
	dataLineBreak = "\x1d"
)

var marks = strings.NewReplacer(dataComma, " ", dataLineBreak, " ",
	",", dataComma, "\r\n", dataLineBreak, "\n", dataLineBreak, "\r", dataLineBreak)

// fromData is the template function that markData adds to the expressions of
// templates of addresses.
func fromData(value any) string { return marks.Replace(strings.TrimSpace(fmt.Sprint(value))) }

// parseRendered parses what a template of addresses gave. A comma that comes from
// data may stand in quotes and comments only: with a character in its place that
// is valid just there, the text must be the same number of addresses.
func parseRendered(text string) ([]*mail.Address, error) {
	text, broken := strings.ReplaceAll(text, dataLineBreak, " "), strings.Contains(text, dataLineBreak)
	list, err := parseAddresses(strings.ReplaceAll(text, dataComma, ","))
	if err == nil && strings.Contains(text, dataComma) {
		strict, strictErr := parseAddresses(strings.ReplaceAll(text, dataComma, "]"))
		if strictErr != nil || len(strict) != len(list) {
			return nil, errSeveral
		}
	}
	if err != nil && (broken || strings.Contains(text, dataComma)) {
		return nil, errSeveral
	}
	return list, err
}

// errSeveral repeats nothing of the value: it may be made to be read.
var errSeveral = fmt.Errorf("%w: a value has a comma or a line break as a list of addresses has, but one expression gives one address; write {{%s ...}} where a value may have several", ErrAddress, addressesFunction)

// bare is the address as it stands in the envelope, without name and brackets.
func bare(a *mail.Address) string {
	quoted := (&mail.Address{Address: a.Address}).String() // quotes odd local parts
	return strings.TrimSuffix(strings.TrimPrefix(quoted, "<"), ">")
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}
