package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// partner is the other end: any program that takes webhooks.
type partner struct {
	out  io.Writer
	done func() // called at the third order

	mu     sync.Mutex
	secret *standardwebhooks.Webhook // that it verifies with
	next   *standardwebhooks.Webhook // that it changes to
	known  map[string]bool           // ids of notifications; a real partner keeps them with the orders
	booked []string
}

func newPartner(out io.Writer, secret, next string, done func()) (*partner, error) {
	p := &partner{out: out, done: done, known: make(map[string]bool)}
	var err error
	if p.secret, err = standardwebhooks.NewWebhook(secret); err != nil {
		return nil, err
	}
	p.next, err = standardwebhooks.NewWebhook(next)
	return p, err
}

func (p *partner) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	// Signature and time, which keeps old requests from being sent once more.
	if err := p.secret.Verify(body, r.Header); err != nil {
		fmt.Fprintln(p.out, "refused:", err)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	// All that counts is in the body: headers are not signed.
	var e struct {
		ID      string      `json:"id"`
		Type    string      `json:"type"`
		Payload OrderPlaced `json:"payload"`
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Type != "order.placed" {
		http.Error(w, "no order", http.StatusUnprocessableEntity) // never to be tried again
		return
	}
	if p.known[e.ID] {
		fmt.Fprintf(p.out, "%s: known already\n", e.Payload.OrderID)
	} else {
		p.known[e.ID] = true
		p.book(w, e.Payload)
	}
}

func (p *partner) book(w http.ResponseWriter, o OrderPlaced) {
	p.booked = append(p.booked, o.OrderID)
	fmt.Fprintf(p.out, "%s: booked\n", o.OrderID)
	switch len(p.booked) {
	case 1:
		fmt.Fprintf(p.out, "%s: the answer gets lost\n", o.OrderID)
		w.WriteHeader(http.StatusBadGateway)
	case 2:
		fmt.Fprintln(p.out, "the partner changes its secret")
		p.secret = p.next
	case 3:
		p.done()
	}
}

// check says what was not booked once.
func (p *partner) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.Equal(p.booked, []string{"o-1", "o-2", "o-3"}) {
		return fmt.Errorf("booked are %v", p.booked)
	}
	return nil
}
