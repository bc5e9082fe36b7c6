package email

import (
	"fmt"
	"net/mail"
	"slices"
	"strings"

	"golang.org/x/net/idna"

	"github.com/waybill-go/waybill/sinks/internal/line"
)

// Limits of a mail's addresses.
const (
	// maxRecipients is what every server must accept in one transaction: RFC 5321, section
	// 4.5.3.1.8.
	maxRecipients = 100
	// maxAddress is the length of the longest path without brackets: RFC 5321, section
	// 4.5.3.1.3.
	maxAddress = 254
	// maxDisplayName keeps a header line, in any encoding, below the 998 bytes of RFC 5322.
	maxDisplayName = 200
)

// recipients lists the recipients of to, cc and bcc, each once.
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
		return nil, fmt.Errorf("%w: %d recipients are more than the %d that every server accepts at once; publish a notification for each", ErrAddress, len(list), maxRecipients)
	}
	return list, nil
}

// parseAddresses parses a comma-separated list; an empty text is an empty list. Line ends count
// as spaces, because a template file ends with one, and so that no value can begin a new header
// line.
func parseAddresses(text string) ([]*mail.Address, error) {
	text = line.Collapse(text)
	if strings.Trim(text, ", ") == "" {
		return nil, nil
	}
	list, err := mail.ParseAddressList(text)
	if err != nil {
		return nil, quoting(ErrAddress, err.Error())
	}
	for _, a := range list {
		a.Address = withASCIIDomain(a.Address)
		if len(a.Address) > maxAddress {
			return nil, fmt.Errorf("%w: an address of %d bytes is too long, the limit is %d", ErrAddress, len(a.Address), maxAddress)
		}
		if len(a.Name) > maxDisplayName {
			return nil, fmt.Errorf("%w: the name of an address is %d bytes long, the limit is %d", ErrAddress, len(a.Name), maxDisplayName)
		}
	}
	return list, nil
}

// withASCIIDomain returns an address with its domain in A-labels (RFC 5890), which every server
// understands. An address whose local part is not ASCII stays as it is, since it needs SMTPUTF8 in any
// case, and so does one whose domain is not valid.
func withASCIIDomain(address string) string {
	local, domain, _ := cutLast(address, "@")
	if line.IsASCII(domain) || !line.IsASCII(local) {
		return address
	}
	encoded, err := idna.Lookup.ToASCII(domain)
	if err != nil {
		return address
	}
	return local + "@" + encoded
}

// Control characters that replace the separators of addresses in the values that a template
// prints. The text of a template may contain several addresses, but a value may not.
const (
	dataComma     = "\x1c"
	dataLineBreak = "\x1d"
)

var marks = strings.NewReplacer(dataComma, " ", dataLineBreak, " ",
	",", dataComma, "\r\n", dataLineBreak, "\n", dataLineBreak, "\r", dataLineBreak)

// fromData replaces the separators in a value. markData adds this function to the expressions of
// templates of addresses.
func fromData(value any) string { return marks.Replace(strings.TrimSpace(fmt.Sprint(value))) }

// parseRendered parses the result of a template of addresses. A comma from data is allowed only
// in quotes and comments. To check this, parseRendered replaces such commas by a character that
// is valid only there: the text must still have the same number of addresses.
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

// errSeveral does not quote the value, which may be crafted to be read in a log.
var errSeveral = fmt.Errorf("%w: a value has a comma or a line break, like a list of addresses, but an expression must give one address; write {{%s ...}} if a value may have several", ErrAddress, addressesFunction)

// bare returns the address for the envelope, without name and brackets.
func bare(a *mail.Address) string {
	quoted := (&mail.Address{Address: a.Address}).String() // quotes odd local parts
	return strings.TrimSuffix(strings.TrimPrefix(quoted, "<"), ">")
}
