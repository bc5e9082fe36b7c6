package httpsink

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"strconv"
	"strings"
	"sync"
	"time"
)

// secretPrefix marks a serialized symmetric secret of Standard Webhooks.
const secretPrefix = "whsec_"

// signer signs requests with the symmetric scheme "v1" of Standard Webhooks
// 1.0.0. It may be used in parallel.
type signer struct {
	states sync.Pool // of *signing: keying an HMAC costs as much as a short body
}

type signing struct {
	mac     hash.Hash
	scratch []byte
}

func newSigner(key []byte) *signer {
	s := new(signer)
	s.states.New = func() any { return &signing{mac: hmac.New(sha256.New, key)} }
	return s
}

// sign adds the three headers of the standard.
func (s *signer) sign(w *headerWriter, id string, at time.Time, body []byte) {
	id = strings.ReplaceAll(id, ".", "%2e")
	timestamp := strconv.FormatInt(at.Unix(), 10)
	w.set(HeaderWebhookID, id)
	w.set(HeaderWebhookTimestamp, timestamp)
	w.set(HeaderWebhookSignature, s.signature(id, timestamp, body))
}

// signature covers "id.timestamp.body".
func (s *signer) signature(id, timestamp string, body []byte) string {
	st := s.states.Get().(*signing)
	defer s.states.Put(st)
	st.mac.Reset()
	st.scratch = append(st.scratch[:0], id...)
	st.scratch = append(st.scratch, '.')
	st.scratch = append(st.scratch, timestamp...)
	st.scratch = append(st.scratch, '.')
	st.mac.Write(st.scratch) // a hash never fails
	st.mac.Write(body)
	sum := st.mac.Sum(st.scratch[:0])
	text := base64.StdEncoding.AppendEncode(append(sum, "v1,"...), sum)
	st.scratch = text
	return string(text[len(sum):])
}
