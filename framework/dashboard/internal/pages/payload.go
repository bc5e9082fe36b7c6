package pages

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/waybill-go/waybill/framework/dashboard/internal/masks"
)

// How much of a payload is shown.
const (
	payloadText   = 64 << 10
	payloadBinary = 4 << 10
	payloadDepth  = 64 // of JSON that is laid out
)

// payload is one that is shown.
type payload struct {
	// Text is what is shown of it, and Form what it is: JSON, text, or bytes in hexadecimal.
	Text, Form string
	// Bytes is how long it is. Cut says that it goes on, Masked that parts of it are hidden,
	// and Problem why it is not shown.
	Bytes       int64
	Cut, Masked bool
	Problem     string
	By          string
	At          time.Time
}

// show makes a payload readable, without what is masked of a type that has these names.
func show(m masks.Masks, names []string, raw []byte) payload {
	p := payload{Bytes: int64(len(raw))}
	shown, hidden, err := m.Hide(names, raw)
	switch p.Masked = hidden; {
	case err != nil:
		p.Problem = "Parts of payloads of this type are masked, and this one is not JSON, so that nothing of it is shown."
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

// layOut indents JSON, unless it is so deep that this would multiply it.
func layOut(raw []byte) []byte {
	if len(raw) > 2*payloadText || depth(raw) > payloadDepth {
		return raw
	}
	var out bytes.Buffer
	if err := json.Indent(&out, bytes.TrimSpace(raw), "", "  "); err != nil {
		return raw
	}
	return out.Bytes()
}

// depth is how deep valid JSON is, at most: brackets within texts count too.
func depth(raw []byte) (deepest int) {
	at := 0
	for _, c := range raw {
		switch c {
		case '{', '[':
			at++
			deepest = max(deepest, at)
		case '}', ']':
			at--
		}
	}
	return deepest
}

// bounded is the beginning of a text, and whether it goes on.
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
