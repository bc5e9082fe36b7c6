package httpsink

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// signer signs requests as Standard Webhooks 1.0.0 says, with each of its keys. So a receiver
// can change its secret, and know either the old or the new one.
type signer struct {
	keys    []signature.Key
	masters []master // from which the keys of each receiver are derived
}

// signs reports whether the signer has keys.
func (s *signer) signs() bool { return len(s.keys)+len(s.masters) > 0 }

// keysFor returns the keys for requests to one receiver.
func (s *signer) keysFor(to *url.URL) []signature.Key {
	keys := slices.Clip(s.keys)
	for _, m := range s.masters {
		keys = append(keys, signature.NewSymmetric(m.derive(to)))
	}
	return keys
}

// sign adds the three headers of the standard. The signed content is
// "id.timestamp.body".
func (s *signer) sign(w *headerWriter, to *url.URL, id string, at time.Time, body []byte) {
	id = strings.ReplaceAll(id, ".", "%2e")
	timestamp := strconv.FormatInt(at.Unix(), 10)
	head := make([]byte, 0, len(id)+len(timestamp)+2)
	head = append(append(append(append(head, id...), '.'), timestamp...), '.')
	var signatures []byte
	for i, k := range s.keysFor(to) {
		if i > 0 {
			signatures = append(signatures, ' ')
		}
		signatures = k.AppendSignature(signatures, head, body)
	}
	w.set(webhook.HeaderWebhookID, id)
	w.set(webhook.HeaderWebhookTimestamp, timestamp)
	w.set(webhook.HeaderWebhookSignature, string(signatures))
}
