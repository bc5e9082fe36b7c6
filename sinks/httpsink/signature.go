package httpsink

import (
	"strconv"
	"strings"
	"time"

	"github.com/waybill-go/waybill/sinks/httpsink/internal/signature"
	"github.com/waybill-go/waybill/sinks/httpsink/webhook"
)

// sign adds the three headers of Standard Webhooks 1.0.0, with a signature of each key. So a receiver
// can change its secret, and know either the old or the new one. The signed content is
// "id.timestamp.body".
func (w *headerWriter) sign(keys []signature.Key, id string, at time.Time, body []byte) {
	id = strings.ReplaceAll(id, ".", "%2e")
	timestamp := strconv.FormatInt(at.Unix(), 10)
	head := make([]byte, 0, len(id)+len(timestamp)+2)
	head = append(append(append(append(head, id...), '.'), timestamp...), '.')
	var signatures []byte
	for i, k := range keys {
		if i > 0 {
			signatures = append(signatures, ' ')
		}
		signatures = k.AppendSignature(signatures, head, body)
	}
	w.set(webhook.HeaderWebhookID, id)
	w.set(webhook.HeaderWebhookTimestamp, timestamp)
	w.set(webhook.HeaderWebhookSignature, string(signatures))
}
