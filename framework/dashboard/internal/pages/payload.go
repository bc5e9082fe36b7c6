package pages

import (
	"encoding/hex"
	"encoding/json"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/admin"
	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
)

// These limit how many bytes of a payload are shown.
const (
	payloadText   = 64 << 10
	payloadBinary = 4 << 10
)

// payload is a payload as a page shows it.
type payload struct {
	// Text is the text to show, and Form its form: JSON, text, or bytes in hexadecimal.
	Text, Form string
	// Bytes is the length of the payload. Cut says that Text is only its beginning, Masked that
	// parts of it are hidden, and Problem why nothing is shown.
	Bytes       int64
	Cut, Masked bool
	Problem     string
	// By is who viewed the payload, and At when.
	By string
	At time.Time
}

// show makes a payload readable and applies the masks of its type. names are the names of the type.
func show(m masks.Masks, names []string, raw []byte) payload {
	p := payload{Bytes: int64(len(raw))}
	shown, hidden, err := m.Hide(names, raw)
	switch p.Masked = hidden; {
	case err != nil:
		p.Problem = "Payloads of this type have masks. This payload is not JSON, so it is hidden completely."
	case json.Valid(shown):
		p.Form = "JSON"
		p.Text, p.Cut = bounded(layOut(shown), payloadText)
	case readable(shown):
		p.Form = "text"
		p.Text, p.Cut = bounded(shown, payloadText)
	default:
		p.Form = "bytes in hexadecimal"
		p.Cut = len(shown) > payloadBinary
		p.Text = hex.Dump(shown[:min(len(shown), payloadBinary)])
	}
	return p
}

// layOut indents JSON that is not too long to be shown.
func layOut(raw []byte) []byte {
	if len(raw) > 2*payloadText {
		return raw
	}
	return admin.LayOut(raw)
}

// bounded returns the beginning of a text, and whether the text is longer.
func bounded(text []byte, most int) (string, bool) {
	if len(text) <= most {
		return string(text), false
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return string(text[:most]), true
}

// readable reports whether bytes are text that can be shown as it is.
func readable(raw []byte) bool {
	if !utf8.Valid(raw) {
		return false
	}
	for _, r := range string(raw) {
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return false
		}
	}
	return true
}
